"""One prefill on its way through the layers: which run sparse, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...models import Adapter
from ...models.hooks import AttentionCall, prompt_attention
from ..attention import Backend, Partial, States
from ..attention.run import jobs, run
from ..modality import IMAGE, PADDING, TEXT, VIDEO, PromptLayout
from ..patterns import Dense, HeadPattern
from ..table import PatternTable
from .report import LayerReport, PrefillReport


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


def recall(states: States, real: Tensor, made: Partial) -> Tensor:
    """Returns share of the dense attention that each head kept, `[heads]`.

    The mean over at most `ASKED` evenly spaced queries, the last one among them: those at the end,
    where dynamic patterns look, would flatter these. Costs `ASKED` rows of scores a head.

    Args:
        real: slots that are no padding, ascending, `[tokens]`.
        made: the sparse result, with the log-sum-exps of the pairs that were computed.
    """
    place = torch.linspace(
        0, len(real) - 1, min(SAMPLE_QUERIES, len(real)), device=real.device
    ).long()
    later = torch.arange(len(real), device=real.device) > place[:, None]  # [asked, tokens]
    shares = []
    for head in range(states.queries.shape[0]):
        keys = states.keys[head // states.group, real]
        scores = (states.queries[head, real[place]] @ keys.T).float() * states.scale
        dense = scores.masked_fill_(later, -torch.inf).logsumexp(1)  # [asked]
        shares.append((made.lse[head, real[place]] - dense).exp().clamp(max=1).mean())
    return torch.stack(shares)


DenseCall = Callable[[], tuple[Tensor, Tensor | None]]

"""The model's own attention of a call: output `[rows, tokens, heads, head_dim]`, and weights."""

BLOCK = 64

"""Shorter prompts are a block or less, of which nothing can be left out."""


@dataclass(eq=False)
class SparsePrefill:
    """Runs a batch of prompts, all layers by one table.

    Attributes:
        table: the patterns.
        layouts: of each row.
        dense_below: rows with fewer tokens run dense.
        backend: runs sparse attention.
        is_measured: whether recall and pairs are measured.
        left: slots of the tokens that a pruner has left so far, `[left]`, of a batch of one row;
            `None` for all.
        reports: of the layers so far.
        lengths: real tokens of each row.
    """

    table: PatternTable
    layouts: list[PromptLayout]
    dense_below: int
    backend: Backend
    is_measured: bool = False
    left: Callable[[], Tensor | None] = lambda: None
    reports: dict[int, LayerReport] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lengths = tuple(len(layout.where()) for layout in self.layouts)

    @property
    def width(self) -> int:
        """Returns the tokens of a row that reach the present layer, padding included."""
        left = self.left()
        return len(self.layouts[0]) if left is None else len(left)

    def reason(self, layer: int) -> str:
        """Returns why a layer runs the model's own attention, or nothing."""
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
        self.reports[layer] = LayerReport(layer, reason)

    @property
    def needs_whole(self) -> bool:
        """Whether a prompt that comes in chunks is to be refused: some layer is sparse."""
        return not all(self.reason(layer) for layer in range(len(self.table.layers)))

    def attend(
        self, layer: int, call: AttentionCall, fallback: DenseCall
    ) -> tuple[Tensor, Tensor | None]:
        """Returns attention of one layer, `[rows, tokens, heads, head_dim]`, and its weights if
        they exist.

        Args:
            call: the layer's states.
            fallback: the model's own attention.
        """
        measured: list[RowMeasurement] = []

        def execute(*states: Any) -> Tensor:
            return self.sparse(layer, AttentionCall(*states), measured)

        *states, scale = call
        output = prompt_attention(*states, scale=scale, execute=execute)
        self.reports[layer] = _summary(layer, measured)
        return output, None

    def sparse(self, layer: int, call: AttentionCall, measured: list[RowMeasurement]) -> Tensor:
        """Runs sparse attention of one layer; arguments and output are as of `attend`."""
        output = call.queries.new_empty(call.queries.shape)
        for row in range(len(output)):
            output[row] = self._row(layer, row, states_of(call, row), measured).output
        return output.transpose(1, 2)

    def _row(self, layer: int, row: int, states: States, measured: list[RowMeasurement]) -> Partial:
        layout, made = self.layout(row, states.queries.device), Partial.empty(states)
        real = layout.where()
        sums = torch.zeros(len(states.queries), dtype=torch.float64, device=real.device)
        for job in jobs(states, layout, self.patterns(layer, len(real))) if len(real) else ():
            run(job, states, self.backend, made)
            if self.is_measured:
                sums[job.heads] += job.pairs
        if self.is_measured and len(real):
            share = float(recall(states, real, made).mean())
            measured.append(RowMeasurement(len(real), share, float(sums.mean())))
        return made

    def layout(self, row: int, device: torch.device) -> PromptLayout:
        """Returns what is left of a row, on the device of the layer: sharded models have
        several.
        """
        if self.layouts[row].frames.device != device:
            self.layouts[row] = self.layouts[row].to(device)
        left = self.left()
        if left is None:
            return self.layouts[row]
        return self.layouts[row].take(left.to(device))

    def patterns(self, layer: int, tokens: int) -> Sequence[HeadPattern]:
        """Returns the patterns of each head for a row of so many tokens."""
        heads = self.table.layers[layer]
        if tokens < max(self.dense_below, BLOCK + 1):
            return [Dense()] * len(heads)
        return [head.pattern for head in heads]

    def report(self) -> PrefillReport:
        """Returns what all layers did."""
        return PrefillReport(self.lengths, tuple(self.reports[n] for n in sorted(self.reports)))


@dataclass(frozen=True)
class RowMeasurement:
    """What was measured of one row in one layer: its tokens, the recall, and the mean pairs of a
    head."""

    tokens: int
    recall: float
    pairs: float


def _summary(layer: int, rows: list[RowMeasurement]) -> LayerReport:
    """Recall is a mean over tokens, the share one over pairs."""
    if not rows:
        return LayerReport(layer)
    mean = sum(row.recall * row.tokens for row in rows) / sum(row.tokens for row in rows)
    dense = sum(row.tokens * (row.tokens + 1) / 2 for row in rows)
    return LayerReport(layer, "", mean, sum(row.pairs for row in rows) / dense)
