"""What every pruner shares: a frozen dataclass, called with a model, is a context manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...checks import check_number, check_whole
from ...models import adapt
from .hooks import PruningHooks
from .stage import Selector


@dataclass(frozen=True)
class Pruner(Selector):
    """Drops visual tokens of a prompt inside the target. The mode is *approximate*.

    `with FastV(ratio=0.9)(model): ...` prunes every prompt that `sooner` prefills with this model
    meanwhile; on exit, and after exceptions, no trace is left. Dropped tokens leave the batch of
    the later layers and have no keys or values there; kept tokens keep their RoPE positions. Works
    with every decoding method, one prompt at a time.

    Subclasses say in front of which layers tokens are dropped, and which ones.
    """

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Prune on `model` until the block ends.

        Raises:
            SoonerError: the model has too few layers for this pruner.
            UnsupportedError: another pruner is at work on it, or, later, a prompt or a cache that
                can't be pruned.
        """
        with PruningHooks(self, adapt(model)):
            yield

    def shares(self, layers: int) -> tuple[float, ...]:
        """Returns share of the prompt's visual tokens that goes on behind each stage."""
        raise NotImplementedError


def check_share(pruner: Any, *names: str) -> None:
    """Require the named fields to lie in 0 to 1.

    Raises:
        SoonerError: names the option and its value.
    """
    for name in names:
        check_number(f"{pruner.name}: {name}", getattr(pruner, name), 0, 1)


def check_layer(pruner: Any, name: str, value: Any, minimum: int = 1) -> None:
    """Require a layer number.

    Raises:
        SoonerError: names the option, its value and the bound.
    """
    check_whole(f"{pruner.name}: {name}", value, minimum)
