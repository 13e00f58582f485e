"""What every pruner is: a context manager with stages, at which tokens are ranked and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from ...checks import check_number, check_whole
from ...engine.cache import SlotCache
from ...errors import SoonerError
from ...models import adapt


@dataclass(frozen=True)
class AttentionInputs:
    """What an attention module was given, kept until its weights are asked for.

    Attributes:
        module: the attention module, with `q_proj`, `head_dim` and `scaling`.
        hidden: its input, `[1, entries, hidden]`.
        rotary: cosine and sine of the entries, each `[1, entries, head_dim]`.
        keys: cached keys, those of the entries last, `[1, kv_heads, keys, head_dim]`.
    """

    module: Any
    hidden: Tensor
    rotary: tuple[Tensor, Tensor]
    keys: Tensor

    def weights(self, entries: Tensor) -> Tensor:
        """Returns attention of `entries` on every key, averaged over heads: `[len(entries),
        keys]`.
        """
        queries, keys = self._queries(entries), self.keys[0].float()
        groups = queries.shape[0] // keys.shape[0]
        grouped = queries.unflatten(0, (-1, groups))  # [kv_heads, groups, queries, head_dim]
        scores = grouped @ keys[:, None].transpose(2, 3) * self.module.scaling
        offset = keys.shape[1] - self.hidden.shape[1] + entries  # [queries]: each one's own key
        later = torch.arange(keys.shape[1], device=keys.device) > offset[:, None]
        return scores.masked_fill(later, -torch.inf).softmax(-1).mean((0, 1))

    def _queries(self, entries: Tensor) -> Tensor:
        """Returns rotated queries in fp32, `[heads, queries, head_dim]`."""
        states = self.module.q_proj(self.hidden[0, entries])
        states = states.unflatten(-1, (-1, self.module.head_dim))  # [queries, heads, head_dim]
        norm = getattr(self.module, "q_norm", None)
        states = (states if norm is None else norm(states)).transpose(0, 1)
        cos, sin = (part[0, entries] for part in self.rotary)
        return (states * cos + _turned(states) * sin).float()


def _turned(states: Tensor) -> Tensor:
    """Returns the other half of a rotation by 90 degrees in every plane of RoPE."""
    first, second = states.chunk(2, dim=-1)
    return torch.cat([-second, first], -1)


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
class Pruner:
    """Drops visual tokens of a prompt inside the target. The mode is *approximate*.

    `with FastV(ratio=0.9)(model): ...` prunes every prompt that `sooner` prefills with this model
    meanwhile; on exit, and after exceptions, no trace is left. Dropped tokens leave the batch of
    the later layers and have no keys or values there; kept tokens keep their RoPE positions. Works
    with every decoding method, one prompt at a time.

    Subclasses say in front of which layers tokens are dropped, and which ones.
    """

    name: ClassVar[str] = ""
    mode: ClassVar[str] = "approximate"

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Prune on `model` until the block ends.

        Raises:
            SoonerError: the model has too few layers for this pruner.
            UnsupportedError: another pruner is at work on it, or, later, a prompt or a cache that
                can't be pruned.
        """
        from .hooks import PruningHooks

        with PruningHooks(self, adapt(model)):
            yield

    def shares(self, layers: int) -> tuple[float, ...]:
        """Returns share of the prompt's visual tokens that goes on behind each stage."""
        raise NotImplementedError

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


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def density_peaks(states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Clusters `states [tokens, hidden]` around `count` of them.

    A centre is dense (its `count` nearest neighbours are near) and far from anything denser.

    Returns:
        The centres, ascending, `[count]`, and for each token which centre it belongs to, `[tokens]`
        in 0 to `count - 1`; a centre belongs to itself.
    """
    states = states.float()
    apart = torch.cdist(states, states) / states.shape[1] ** 0.5  # [tokens, tokens]
    near = apart.topk(min(count, len(states)), largest=False).values
    density = (-(near**2).mean(1)).exp()
    denser = density[None] > density[:, None]
    # The densest token has nothing above it, and is as far as anything can be.
    gap = torch.where(denser, apart, apart.max()).min(1).values
    centres = (gap * density).topk(count).indices.sort().values
    owner = apart[:, centres].argmin(1)
    owner[centres] = torch.arange(count, device=states.device)
    return centres, owner


def cluster_means(states: Tensor, owner: Tensor, count: int) -> Tensor:
    """Returns the mean of the states of each cluster, `[count, hidden]`."""
    sums = states.new_zeros(count, states.shape[1]).index_add_(0, owner, states)
    sizes = torch.bincount(owner, minlength=count).to(states.dtype)
    return sums / sizes[:, None]


def keep_best(visual: Tensor, scores: Tensor, count: int) -> Tensor:
    """Returns the places of all other tokens and of the `count` best visual ones, ascending.

    Args:
        visual: which tokens are visual, `[tokens]` bool.
        scores: of every token, `[tokens]`; only those of visual ones are read.
        count: visual tokens to keep.
    """
    mask = ~visual
    places = visual.nonzero()[:, 0]
    mask[places[scores[places].topk(count).indices]] = True
    return mask.nonzero()[:, 0]


def instruction(visual: Tensor) -> Tensor:
    """Places of the text behind the last visual token (the last token of all, if there is none).

    A decoder is causal: text in front of a picture has not seen it and can't judge it.
    """
    start = int(visual.nonzero()[-1]) + 1 if bool(visual.any()) else 0
    first = min(start, len(visual) - 1)
    return torch.arange(first, len(visual), device=visual.device)
