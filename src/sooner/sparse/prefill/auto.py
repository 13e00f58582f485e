"""Patterns for a model without searched patterns, run where they are faster by the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from ...models import Adapter
from ...models.hooks import AttentionCall
from ..cost import clock, flops
from ..modality import MODALITIES
from ..patterns import HeadPattern, QBoundary, VerticalSlash
from .forward_context import DenseCall, SparsePrefill, states_of

T = TypeVar("T")

MIN_TOKENS = 1024
"""Prompt tokens below which nothing is gained, and nothing is timed."""

MAX_SHARE = 0.75
"""Share of dense attention's FLOPs above which patterns are not even tried."""

GAIN = 0.8
"""Share of dense attention's time that patterns have to stay below when they are tried: for less, a
result is not worth being approximate."""

BRIEF = 0.02
"""Seconds: what is done sooner is timed twice, since once may be a matter of chance."""


def auto_pattern(adapter: Adapter, tokens: int) -> HeadPattern:
    """Returns vertical and slash lines, separate ones for the queries of each modality.

    They fit any head, if none as well as a search would: of a miniature's attention over 3084
    tokens half of the pairs hold 75 % so, and lines by frame with a fifth of them 30 %.

    Args:
        tokens: of the prompt; see `VerticalSlash.sized`.
    """
    lines = VerticalSlash.sized(tokens)
    return QBoundary(dict.fromkeys(MODALITIES, lines)) if adapter.visual_ids else lines


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
    def needs_whole(self) -> bool:
        """Returns `False`: a prompt that comes in chunks stays dense."""
        return False

    @property
    def is_sparse(self) -> bool:
        """Never for certain: the model's own mask has to be there."""
        return False

    def reason(self, layer: int) -> str:
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
            reason = f"the lines of layer {layer} hold {share:.0%} of dense attention's FLOPs"
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
    """Returns seconds and result of a call; the better of two if it is brief, or has to be
    compiled.
    """
    seconds, result = clock(run, device)
    if seconds < BRIEF or device.type == "cuda":
        seconds = min(seconds, clock(run, device)[0])
    return seconds, result
