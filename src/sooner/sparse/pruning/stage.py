"""What a pruner is asked at each of its stages: which of the tokens go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

from torch import Tensor

from ...engine.cache import SlotCache
from ...errors import SoonerError
from .keep import AttentionInputs


@dataclass(frozen=True)
class PruningStage:
    """The tokens that reach a layer in front of which some may be dropped.

    Attributes:
        number: which of the pruner's stages this is, from 0.
        layer: the layer that they are about to enter.
        depth: layers of the model.
        hidden: their states, `[tokens, hidden]`.
        places: their places in the prompt, ascending, `[tokens]`.
        visual: which of them came from pixels, `[tokens]` bool.
        frames: video frame of each or -1, `[tokens]`; see `Prompt.frames`.
        total: visual tokens of the whole prompt.
        attention: attention in the layer before, of the given tokens on all tokens, averaged over
            heads: `[queries]` to `[queries, tokens]`.
        memo: what the pruner's `begin` returned.
    """

    number: int
    layer: int
    depth: int
    hidden: Tensor
    places: Tensor
    visual: Tensor
    frames: Tensor
    total: int
    attention: Callable[[Tensor], Tensor]
    memo: Any


@dataclass(frozen=True)
class Selection:
    """What goes on behind a stage.

    Attributes:
        index: which of the stage's tokens, ascending, `[kept]`.
        hidden: their states where they are not simply those that came in, `[kept, hidden]`.
    """

    index: Tensor
    hidden: Tensor | None = None


class Follower(Protocol):
    """Chooses, token by token, what the layers behind one attend to."""

    def step(self, cache: SlotCache, seen: AttentionInputs) -> None:
        """Is called with what the watched layer saw, before the later layers run."""


@dataclass(frozen=True)
class Selector:
    """Chooses which visual tokens continue after which layers."""

    name: ClassVar[str] = ""
    mode: ClassVar[str] = "approximate"

    def stages(self, layers: int) -> tuple[int, ...]:
        """Layers, ascending, in front of which tokens may be dropped; 0 is before the decoder."""
        raise NotImplementedError

    def begin(self, hidden: Tensor, visual: Tensor) -> Any:
        """Look at the embedded prompt, `[tokens, hidden]`; the result is each stage's `memo`."""
        return None

    def keep(self, stage: PruningStage) -> Selection:
        """Choose what goes on."""
        raise NotImplementedError

    def follow(self, visual: Tensor) -> Follower | None:
        """Returns what goes on choosing while tokens are generated, for a prompt that was just
        prefilled.

        Args:
            visual: which prompt tokens the layers behind the last stage hold and came from pixels,
                `[left]` bool.
        """
        return None

    def follows(self, layers: int) -> int | None:
        """Returns the layer whose attention `follow` needs, or `None` if it never chooses."""
        return None

    def check_depth(self, layers: int) -> None:
        """Refuse a model without the layers that the pruner works on.

        Raises:
            SoonerError: names the pruner, its layers and the model's number of them.
        """
        stages = self.stages(layers)
        if any(layer >= layers for layer in stages) or list(stages) != sorted(set(stages)):
            raise SoonerError(
                f"{self.name}: drops tokens in front of layers {_listed(stages)}, but the model "
                f"has {layers} layers; choose different ones below that, ascending"
            )

    def __str__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{type(self).__name__}({values})"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
