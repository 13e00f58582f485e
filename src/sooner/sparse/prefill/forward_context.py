"""One prefill on its way through the layers: which run sparse, and what is measured; for a model
without searched patterns, those that are faster by the clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...models import Adapter
from ...models.hooks import AttentionCall
from ..attention import Backend, States
from ..cost import clock, flops
from ..modality import IMAGE, PADDING, TEXT, VIDEO, PromptLayout
from ..patterns import Dense, HeadPattern
from ..plane import Plane, plane_of
from ..table import PatternTable
from .report import LayerReport, PrefillReport

T = TypeVar("T")


def of_call(adapter: Adapter, inputs: Mapping[str, Any]) -> list[PromptLayout] | None:
    """Returns the layout of each row of a padded batch, with its padding.

    Args:
        inputs: the arguments of the family's forward.

    Returns:
        Nothing where they do not tell: embeddings instead of ids, or a mask that is no padding.
    """
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if ids is None or (mask is not None and tuple(mask.shape) != tuple(ids.shape)):
        return None
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.to(ids.device).bool()
    frames = adapter.video_frames(inputs)
    modality = torch.full_like(ids, TEXT)
    for token in adapter.visual_ids:
        modality[ids == token] = IMAGE
    modality[frames >= 0] = VIDEO
    modality[~real] = PADDING
    frames = frames.masked_fill(~real, -1)
    return [PromptLayout(*row) for row in zip(modality, frames, strict=True)]


def states_of(call: AttentionCall, row: int) -> States:
    """Returns the states of one row of a call."""
    return States(call.queries[row], call.keys[row], call.values[row], call.scale)


SAMPLE_QUERIES = 64
"""Queries on which recall is measured."""


def recall(states: States, plane: Plane, lse: Tensor) -> Tensor:
    """Returns share of the dense attention that each head kept, `[heads]`.

    The mean over `SAMPLE_QUERIES` evenly spaced queries, the last one among them: those at the end,
    where dynamic patterns look, would flatter these. Each costs a row of scores a head.

    Args:
        plane: all tokens that are no padding.
        lse: log-sum-exps of the pairs that were computed, `[heads, queries]`.
    """
    last, device = len(plane.queries) - 1, plane.keys.device
    place = torch.linspace(0, last, min(SAMPLE_QUERIES, 1 + last), device=device).long()
    queries, frontier = plane.queries[place], plane.frontier[place, None]
    later = torch.arange(len(plane.keys), device=device) > frontier  # [queries, keys]
    shares = []
    for head in range(states.queries.shape[0]):
        keys = states.keys[head // states.group, plane.keys]
        scores = (states.queries[head, queries] @ keys.T).float() * states.scale
        dense = scores.masked_fill_(later, -torch.inf).logsumexp(1)  # [queries]
        shares.append((lse[head, queries] - dense).exp().clamp(max=1).mean())
    return torch.stack(shares)


DenseCall = Callable[[], tuple[Tensor, Tensor | None]]
"""The model's own attention of a call: output `[rows, tokens, heads, head_dim]`, and weights."""

BLOCK = 64
"""Shorter prompts are a block or less, of which nothing can be left out."""


Measured = tuple[int, float | None, Tensor | None, int]
"""A row in one layer: queries, recall, pairs (a mean over heads, on the device), causal pairs.
Recall is `None` where it is not measured, pairs where they are not counted."""


@dataclass(eq=False)
class SparsePrefill:
    """Runs a batch of prompts, all layers by one table.

    Attributes:
        table: the patterns.
        layouts: of each row.
        dense_below: rows with fewer tokens run dense.
        backend: runs sparse attention.
        is_measured: whether recall is measured.
        source: where the patterns come from.
        windowed: layers that see a window or a chunk.
        left: slots of tokens that a pruner has left of one row so far, `[left]`; `None` for all.
        is_cut: attention gets the prompt in chunks.
        reports: of the layers so far.
        shares: query-key pairs that sparse layers computed, of those of dense attention.
        measured: by layer, of all rows and chunks so far.
        lengths: real tokens of each row.
    """

    table: PatternTable
    layouts: list[PromptLayout]
    dense_below: int
    backend: Backend
    is_measured: bool = False
    source: str = ""
    windowed: frozenset[int] = frozenset()
    left: Callable[[], Tensor | None] = lambda: None
    is_cut: bool = False
    measured: dict[int, list[Measured]] = field(default_factory=lambda: defaultdict(list))
    reports: dict[int, LayerReport] = field(default_factory=dict)
    shares: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lengths = tuple(len(layout.where()) for layout in self.layouts)

    @property
    def width(self) -> int:
        """Returns the tokens of a row that reach the present layer, padding included."""
        left = self.left()
        return len(self.layouts[0]) if left is None else len(left)

    def reason(self, layer: int) -> str:
        """Returns why a layer runs the model's own attention, or nothing."""
        if layer in self.windowed:
            return "it sees a window"
        if all(isinstance(head.pattern, Dense) for head in self.table.layers[layer]):
            return "pattern"
        longest, minimum = max(self.lengths), max(self.dense_below, BLOCK + 1)
        return f"{longest} tokens, sparse from {minimum} on" if longest < minimum else ""

    @property
    def is_sparse(self) -> bool:
        """No layer does."""
        return not any(self.reason(layer) for layer in range(len(self.table.layers)))

    def leave(self, layer: int, reason: str) -> None:
        """Note that a layer ran the model's own attention."""
        self.reports[layer] = LayerReport(layer, reason, is_windowed=layer in self.windowed)

    @property
    def needs_whole(self) -> bool:
        """Whether a prompt in chunks is to be refused: a sparse layer has dynamic patterns."""
        return any(
            not self.reason(layer) and any(head.pattern.dynamic for head in heads)
            for layer, heads in enumerate(self.table.layers)
        )

    def attend(
        self, layer: int, call: AttentionCall, fallback: DenseCall
    ) -> tuple[Tensor, Tensor | None]:
        """Returns attention of a layer, `[rows, tokens, heads, head_dim]`, and weights, if any.

        Args:
            call: the layer's states.
            fallback: the model's own attention.
        """
        measured = self.measured[layer]
        output = self.sparse(layer, call, measured)
        self.reports[layer] = LayerReport(layer)
        if measured:  # recall is a mean over tokens, the share one over pairs
            known = [(count, share) for count, share, *_ in measured if share is not None]
            tokens = sum(count for count, _ in known)
            mean = sum(share * count for count, share in known) / tokens if known else None
            self.reports[layer] = LayerReport(layer, recall=mean)
            pairs = [part for *_, part, _ in measured if part is not None]
            if pairs:
                self.shares[layer] = torch.stack(pairs).sum() / sum(dense for *_, dense in measured)
        return output, None

    def sparse(self, layer: int, call: AttentionCall, measured: list[Measured]) -> Tensor:
        """Runs sparse attention of one layer; arguments and output are as of `attend`."""
        rows, end = range(len(call.queries)), call.keys.shape[2]
        wholes = [self.layout(row, call.queries.device) for row in rows]
        layouts = [whole.chunk(end - call.queries.shape[2], end) for whole in wholes]
        patterns = [self.patterns(layer, len(whole.where())) for whole in wholes]
        states = States(call.queries, call.keys, call.values, call.scale)
        output, lse, works = self.backend.layer(states, layouts, patterns)
        heads, pairs = lse.shape[1], None
        if self.is_measured or lse.device.type == "cpu":  # a GPU would wait for it at each layer
            pairs = lse.new_zeros(len(lse), dtype=torch.float64)  # [rows]
            for first, work in enumerate(works):
                for group in work.groups if work else ():
                    pairs.index_add_(0, first + group.heads // heads, group.pairs.double() / heads)
        for row, layout in enumerate(layouts):
            if count := len((plane := plane_of(layout, "")).queries):
                share = None
                if self.is_measured:
                    share = float(recall(states_of(call, row), plane, lse[row]).mean())
                row_pairs = None if pairs is None else pairs[row]
                measured.append((count, share, row_pairs, plane.pairs))
        return output.transpose(1, 2)

    def layout(self, row: int, device: torch.device) -> PromptLayout:
        """Returns what is left of a row, on the layer's device: sharded models have several."""
        if self.layouts[row].frames.device != device:
            self.layouts[row] = self.layouts[row].to(device)
        left, whole = self.left(), self.layouts[row]
        if left is None:
            return whole
        if whole.cache.get("left", (None, None))[0] is not left:  # layers share what is left
            whole.cache["left"] = left, whole.take(left.to(device))
        return whole.cache["left"][1]

    def patterns(self, layer: int, tokens: int) -> Sequence[HeadPattern]:
        """Returns the patterns of each head for a row of so many tokens."""
        heads = self.table.layers[layer]
        if tokens < max(self.dense_below, BLOCK + 1):
            return [Dense()] * len(heads)
        return [head.pattern for head in heads]

    def report(self) -> PrefillReport:
        """Returns what all layers did."""
        for layer, share in self.shares.items():
            self.reports[layer] = replace(self.reports[layer], share=float(share))
        layers = tuple(self.reports[number] for number in sorted(self.reports))
        return PrefillReport(self.lengths, layers, self.source)


MIN_TOKENS = 1024
"""Prompt tokens below which nothing is gained, and nothing is timed."""

MAX_SHARE = 0.75
"""Share of dense attention's FLOPs above which patterns are not even tried."""

GAIN = 0.8
"""Share of dense attention's time that patterns have to stay below when they are tried: for less, a
result is not worth being approximate."""

BRIEF = 0.02
"""Seconds: what is done sooner is timed twice, since once may be a matter of chance."""


@dataclass(eq=False)
class TimedPrefill(SparsePrefill):
    """A prefill that times the patterns against the model's own attention, and takes the faster.

    The first layer is run both ways on its own states, those of the very prompt, and keeps the
    model's own result. Layers behind it are sparse if that was a fifth faster. Low layers are the
    least sparse (section 2.1), so a layer in the middle is tried once more if it was not. While
    layers are sparse the clock goes on: when they have taken longer than as many dense ones would,
    which take the same time whatever they see, the rest is dense.

    Attributes:
        verdict: why layers run the model's own attention; empty while they may be sparse.
        dense_seconds: of the model's own attention in one layer; `None` before it was timed.
        spent: seconds of the sparse layers so far.
        count: how many these were.
    """

    verdict: str = ""
    dense_seconds: float | None = None
    spent: float = 0.0
    count: int = 0
    tried: set[int] = field(default_factory=set)

    @property
    def is_sparse(self) -> bool:
        """Never for certain: the model's own mask has to be there."""
        return False

    def reason(self, layer: int) -> str:
        if self.is_cut:
            return "the prompt comes in chunks"
        return super().reason(layer) or ("" if self._tries(layer) else self.verdict)

    def attend(
        self, layer: int, call: AttentionCall, fallback: DenseCall
    ) -> tuple[Tensor, Tensor | None]:
        if self._tries(layer):
            self.tried.add(layer)
            result, self.verdict = self._try(layer, call, fallback)
            return result
        if self.is_measured:  # which takes time of its own
            return super().attend(layer, call, fallback)
        attend = super().attend
        seconds, result = clock(lambda: attend(layer, call, fallback), call.queries.device)
        self.spent, self.count = self.spent + seconds, self.count + 1
        assert self.dense_seconds is not None
        if self.spent > self.count * self.dense_seconds:
            self.verdict = (
                f"{self.count} sparse layers took {self.spent:.3g} s, as many dense ones take "
                f"{self.count * self.dense_seconds:.3g} s"
            )
        return result

    def _tries(self, layer: int) -> bool:
        """Returns whether a layer is run both ways."""
        if not self.tried:
            return True
        middle = layer >= len(self.table.layers) // 2
        return middle and len(self.tried) == 1 and bool(self.verdict) and not self.count

    def _try(
        self, layer: int, call: AttentionCall, fallback: DenseCall
    ) -> tuple[tuple[Tensor, Tensor | None], str]:
        """Returns the model's own result, and why the layers behind shall have it too, if so."""
        share = self._share(layer, call)
        if share > MAX_SHARE:
            reason = f"the patterns of layer {layer} hold {share:.0%} of dense attention's FLOPs"
            self.leave(layer, reason)
            return fallback(), reason
        dense, result = _best(fallback, call.queries.device)
        sparse, _ = _best(lambda: self.sparse(layer, call, []), call.queries.device)
        self.dense_seconds = dense
        self.leave(layer, f"timed: {dense:.3g} s dense, {sparse:.3g} s sparse")
        slower = f"layer {layer} took {dense:.3g} s dense, {sparse:.3g} s sparse"
        return result, "" if sparse < GAIN * dense else slower

    def _share(self, layer: int, call: AttentionCall) -> float:
        """Returns FLOPs of the longest row's patterns, of those of dense attention."""
        row = max(range(len(self.lengths)), key=lambda number: self.lengths[number])
        layout = self.layout(row, call.queries.device)
        return flops(self.patterns(layer, len(layout.where())), states_of(call, row), layout)


def _best(run: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """Returns seconds and result of a call; the better of two if it is brief or on a GPU."""
    seconds, result = clock(run, device)
    if seconds < BRIEF or device.type == "cuda":
        seconds = min(seconds, clock(run, device)[0])
    return seconds, result
