"""What every pruner shares: a frozen dataclass, called with a model, is a context manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from ...checks import check_number, check_whole
from ...errors import SoonerError
from ...models import adapt
from .hooks import PruningHooks
from .stage import Selector

SomePruner = TypeVar("SomePruner", bound="Pruner")


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

    def retention(self, layers: int) -> float:
        """Mean share of visual tokens over the layers (the paper's average retention ratio)."""
        borders = (*self.stages(layers), layers)
        total = sum(
            share * (end - begin)
            for share, begin, end in zip(self.shares(layers), borders, borders[1:], strict=False)
        )
        return (borders[0] + total) / layers

    def decode_retention(self, layers: int) -> float:
        """Mean share of visual tokens over the layers that a generated token attends to."""
        return self.retention(layers)

    def for_retention(self, share: float, layers: int) -> Self:
        """Returns this pruner, made to keep the mean share `share` of the visual tokens.

        Where the layers in front of the first stage alone take more than three quarters of that,
        the stages are brought forward, all in the same proportion, until they take half: a shallow
        model would have nothing left for the layers behind.

        Raises:
            SoonerError: it can't keep so few or so many.
        """
        stages = self.stages(layers)
        if stages[0] <= max(1, 0.75 * share * layers):
            return at_retention(self, share, layers)
        first, forward, last = max(1, int(share * layers / 2)), [], 0
        for stage in stages:
            last = max(last + 1, round(first * stage / stages[0]))
            forward.append(last)
        return at_retention(self.with_stages(tuple(forward)), share, layers)

    def with_stages(self, stages: tuple[int, ...]) -> Self:
        """This pruner with its stages in front of other layers, as many as it has."""
        raise NotImplementedError


def at_retention(pruner: SomePruner, share: float, layers: int) -> SomePruner:
    """Returns the pruner with the `ratio` at which it keeps the mean share `share` over `layers`
    layers.

    Table 2 of ParallelVLM compares its baselines at an average retention of 10 %.

    Raises:
        SoonerError: no ratio does, since too many early layers see every token.
    """
    smallest = replace(pruner, ratio=1.0).retention(layers)  # type: ignore[call-arg]
    if not smallest <= share <= 1:
        raise SoonerError(
            f"{pruner.name}: keeps between {smallest:.0%} and 100% of the visual tokens on average "
            f"over {layers} layers, so {share:.0%} is out of reach; drop in front of earlier layers"
        )
    return with_share(pruner, "ratio", share, lambda candidate: candidate.retention(layers))


def with_share(
    pruner: SomePruner, name: str, share: float, retention: Callable[[SomePruner], float]
) -> SomePruner:
    """Returns the pruner with the value of a field, 0 to 1, at which `retention` tells `share`.

    Args:
        name: of the field; the larger it is, the less is kept.
        retention: the share that a pruner keeps.
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        more = retention(replace(pruner, **{name: middle})) > share
        low, high = (middle, high) if more else (low, middle)
    return replace(pruner, **{name: high})


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
