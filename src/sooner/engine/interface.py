"""The two things the loop is handed: a model behind an adapter, and a drafter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers.modeling_outputs import BaseModelOutputWithPast

from ..errors import UnsupportedError
from .noise import RowNoise
from .rows import Rows
from .stats.run import NO_TIME, Interval
from .tree import Tree

OLD, NEW = "past_key_values", "cache"
"""Names by which models take and return their cache: `cache` from transformers 5.24 on, the other
before, and in remote code written for that."""
CACHE_NAMES = (NEW, OLD)
CACHE = NEW if NEW in {field.name for field in fields(BaseModelOutputWithPast)} else OLD
"""The one of the transformers that is installed, in its outputs and in what `generate` hands on."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Prompt:
    """A batch of prompts as the decoder takes them: embedded, positioned, padding at the end.

    Attributes:
        embeds: `[rows, width, hidden]`, visual features already in place.
        positions: RoPE positions, `[rows, width]`, or `[3, rows, width]` for M-RoPE families.
        lengths: real tokens of each row; what lies behind is padding.
        next_position: position of the first generated token, one behind that of the last prompt
            token: `[rows]`, or `[3, rows]` for M-RoPE families, where it is not the length.
        visual: which tokens came from pixels, `[rows, width]` bool.
        extras: further decoder arguments of the prefill, such as DeepStack features.
        frames: video frame (temporal group) that a token belongs to, `[rows, width]`, -1 for every
            other token. Numbers rise by one from frame to frame, and by two or more to another
            video. `None` if they were not counted.
        generated: the last tokens of each row that it generated before it was interrupted.
    """

    embeds: Tensor
    positions: Tensor
    lengths: list[int]
    next_position: Tensor
    visual: Tensor
    extras: dict[str, Any] = field(default_factory=dict)
    frames: Tensor | None = None
    generated: int = 0

    @property
    def rows(self) -> int:
        return self.embeds.shape[0]

    @property
    def width(self) -> int:
        return self.embeds.shape[1]

    def release(self) -> None:
        """Let go of embeddings and features, which only the prefill needs: gigabytes for a long
        video. A slice would keep their memory, so an empty tensor takes their place."""
        self.embeds = self.embeds.new_empty(self.rows, 0, self.embeds.shape[-1])
        self.extras = {}


class AdapterLike(Protocol):
    """What a runner needs of a model family's adapter (see `sooner.models`)."""

    model: nn.Module
    chains_only: ClassVar[bool]

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def takes_blocks(self) -> bool: ...

    @property
    def windows(self) -> Mapping[str, tuple[int | None, int | None]]: ...

    @property
    def text_config(self) -> Any: ...

    @property
    def decoder(self) -> Any: ...

    def may_split(self, prompt: Prompt) -> bool: ...

    def cut_extras(self, prompt: Prompt, start: int, end: int) -> dict[str, Any]: ...

    def open_cache(self, capacity: int) -> Any: ...

    def embed_tokens(self, tokens: Tensor) -> Tensor: ...

    def step_extras(self, tokens: Tensor) -> dict[str, Any]: ...

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor: ...

    def logits(self, hidden: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class CommittedBlock:
    """What a step has committed of each row, on the device, for drafters that work there.

    Attributes:
        tokens: accepted draft tokens, the target's own behind them, `[rows, 1 + depth]`.
        path: accepted block entries, `[rows, depth]`.
        entries: of the block that are kept, root included, and so how many of `tokens` are real,
            `[rows]`; one less of `path` are.
    """

    tokens: Tensor
    path: Tensor
    entries: Tensor

    def last(self, count: int) -> Tensor:
        """Returns each row's last `count` tokens, `[rows, count]`, with its first one in front."""
        line = torch.arange(-count, 0, device=self.entries.device)
        return self.tokens.gather(1, (self.entries[:, None] + line).clamp(min=0))

    def select_rows(self, rows: Tensor) -> CommittedBlock:
        """Returns the block of the rows with these indices, `[kept]`."""
        return CommittedBlock(self.tokens[rows], self.path[rows], self.entries[rows])

    def merge(self, other: CommittedBlock) -> CommittedBlock:
        """Returns these rows, followed by those of `other`."""
        return CommittedBlock(
            _stacked(self.tokens, other.tokens),
            _stacked(self.path, other.path),
            torch.cat([self.entries, other.entries.to(self.entries.device)]),
        )


@dataclass
class Outcome:
    """What a round has decided; the drafter gets it after the target's forward.

    Attributes:
        rows: the batch; `rows.active` are the rows that go on, in the order of every list below.
        new: tokens committed this round, each ending in the target's own token.
        accepted: how many of them were draft tokens.
        budget: how many tokens each row may generate in the next round, its longest draft counted.
        forward_time: of the target's forward; none for the prefill.
        round_time: from the moment that a draft was handed over until it was verified.
        hidden: decoder states of the block, `[rows, 1 + nodes, hidden]` (the last prompt token's
            alone in the first round).
        scores: the target's processed scores of the block, `[rows, 1 + nodes, vocab]`.
        path: accepted block entries of each row, the root's 0 first.
        committed: tokens and paths once more, on the device.
        noise: the rows' random numbers, at the first token of the next draft.
        is_first: the round was the prefill of every row.
    """

    rows: Rows
    new: list[list[int]]
    accepted: list[int]
    budget: list[int]
    forward_time: Interval
    hidden: Tensor
    scores: Tensor
    path: list[list[int]]
    committed: CommittedBlock
    noise: RowNoise
    is_first: bool
    round_time: Interval = NO_TIME

    def of(self, rows: list[int]) -> Outcome:
        """Returns what it says of some active rows, in order; of none, no tensor is cut."""
        if rows:
            index = torch.tensor(rows, device=self.scores.device)
            hidden, scores = self.hidden[index.to(self.hidden.device)], self.scores[index]
            noise, committed = self.noise.select_rows(index), self.committed.select_rows(index)
        else:
            hidden, scores, noise = self.hidden, self.scores, self.noise
            committed = self.committed
        return replace(
            self,
            new=[self.new[row] for row in rows],
            accepted=[self.accepted[row] for row in rows],
            budget=[self.budget[row] for row in rows],
            path=[self.path[row] for row in rows],
            hidden=hidden,
            scores=scores,
            committed=committed,
            noise=noise,
        )

    def merge(self, other: Outcome) -> None:
        """Put the rows of `other`, which were just prefilled, behind these; `rows` has them."""
        self.hidden = _stacked(self.hidden, other.hidden)
        self.scores = _stacked(self.scores, other.scores)
        self.committed = self.committed.merge(other.committed)
        self.noise = self.noise.merge(other.noise)
        self.new += other.new
        self.accepted += other.accepted
        self.budget += other.budget
        self.path += other.path


def _stacked(above: Tensor, below: Tensor) -> Tensor:
    """Rows of two tensors `[rows, entries, ...]`, the shorter ones padded."""
    entries = max(above.shape[1], below.shape[1])
    rest = (0, 0) * (above.ndim - 2)  # nothing along the further axes
    return torch.cat(
        [pad(part, (*rest, 0, entries - part.shape[1])) for part in (above, below.to(above.device))]
    )


class Drafter:
    """Makes the next draft, around the target's forward; it may read the prefill's states.

    Rows are admitted together, and each group has a drafter of its own until its prompts are
    prefilled; then it may `merge` the drafter of rows that decode already.

    The base class drafts nothing, which is plain autoregressive decoding.
    """

    def on_verify_start(self, pending: Tree, rows: Rows) -> None:
        """Is called before the target's forward over `pending`; first before the prefill."""

    def on_prefill(self, prompt: Prompt, start: int, states: Tensor) -> None:
        """Is called in the prefill with the target's states of the prompt's tokens from `start` on.

        They are `[rows, tokens, hidden]`, padding included; called once for each chunk.
        """

    def begin(self, outcome: Outcome) -> Iterator[None]:
        """Behind the prefill, if any row goes on: once, before the first `propose` or `merge`.

        Here a drafter prefills its own prompts; it yields between chunks, so that others decode.
        """
        return iter(())

    def propose(self, outcome: Outcome) -> Tree:
        """Returns the draft of the next round, one tree for each active row."""
        return Tree.empty(len(outcome.rows.active), outcome.hidden.device)

    def select_rows(self, rows: list[int]) -> None:
        """Keeps only these active rows, in this order, before `propose`; the others have ended."""

    def merge(self, other: Any) -> None:
        """Take the rows of `other`, a drafter of the same method that has begun, behind one's own.

        Raises:
            UnsupportedError: the method decodes only rows that were admitted together.
        """
        if type(self) is not Drafter:
            raise UnsupportedError(
                f"{type(self).__name__} decodes only rows that are admitted together; give such "
                "requests a batch of their own"
            )

    def close(self) -> None:
        """Is called when decoding has ended, by success or by an exception."""


def names_rope(text: Any, *kinds: str) -> bool:
    """Returns whether a text config names one of these kinds of RoPE, for whatever layers."""
    fields = ("rope_parameters", "rope_scaling")
    names = [str(getattr(text, field, None)) for field in fields]
    return any(kind in name for kind in kinds for name in names)


def max_positions(text: Any) -> int | None:
    """Returns tokens of the longest text that a model is made for, by its text config: `dynamic`
    RoPE stretches its positions by a factor. `None` is any number.
    """
    positions = getattr(text, "max_position_embeddings", None)
    factors = [rope.get("factor") or 1 for rope in each_rope(text) if rope_type(rope) == "dynamic"]
    return positions if positions is None else int(positions * max(factors, default=1))


def rope_parameters(text: Any) -> Any:
    """Returns the parameters of a text config's RoPE, by either of transformers' spellings."""
    return getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}


def each_rope(text: Any) -> list[Mapping[str, Any]]:
    """Returns a text config's RoPE parameters, and those of each kind of layer if it has some."""
    params = rope_parameters(text)
    parts = [params, *params.values()] if isinstance(params, Mapping) else []
    return [part for part in parts if isinstance(part, Mapping)]


def rope_type(params: Mapping[str, Any]) -> Any:
    return params.get("rope_type", params.get("type"))


def cache_argument(forward: Callable[..., Any]) -> str:
    """Returns the name of the argument by which a forward takes its cache.

    That of the installed transformers where it names neither.
    """
    parameters = inspect.signature(forward).parameters
    return next((name for name in CACHE_NAMES if name in parameters), CACHE)


def cache_of(arguments: Mapping[str, Any]) -> Any:
    """Returns the cache among a forward's keyword arguments, by either name, or `None`."""
    return arguments.get(NEW, arguments.get(OLD))


def takes_either_name(forward: Callable[P, R]) -> Callable[P, R]:
    """A forward with an argument `cache` that is given it as `past_key_values`, too."""

    @wraps(forward)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> R:
        if OLD in kwargs:
            kwargs[NEW] = kwargs.pop(OLD)
        return forward(*args, **kwargs)

    return renamed
