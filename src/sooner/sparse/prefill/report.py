"""What sparse prefills did: layer by layer, with what was measured."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean


@dataclass(frozen=True)
class LayerReport:
    """What one layer of one prefill did.

    Attributes:
        layer: its number.
        reason: why it ran the model's own attention; empty if it was sparse.
        recall: mean share of the dense attention that was kept, over rows, heads and sampled
            queries; `None` where nothing was measured.
        share: query-key pairs that were computed, of those of dense attention; `None` if dense, or
            not counted.
        is_windowed: whether its tokens see a window or a chunk of those before them.
    """

    layer: int
    reason: str = ""
    recall: float | None = None
    share: float | None = None
    is_windowed: bool = False

    @property
    def is_sparse(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class PrefillReport:
    """Reports on one prompt, or batch of prompts, that goes through a model.

    Attributes:
        tokens: real tokens of each row.
        layers: what each layer did, in order.
        source: where the patterns come from.
    """

    tokens: tuple[int, ...]
    layers: tuple[LayerReport, ...]
    source: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether every layer ran the model's own attention."""
        return not self.sparse

    @property
    def sparse(self) -> tuple[LayerReport, ...]:
        return tuple(layer for layer in self.layers if layer.is_sparse)

    @property
    def recall(self) -> float | None:
        """Mean over the sparse layers."""
        known = [layer.recall for layer in self.sparse if layer.recall is not None]
        return fmean(known) if known else None

    @property
    def lowest_recall(self) -> float | None:
        """Returns the recall of the worst layer."""
        known = [layer.recall for layer in self.sparse if layer.recall is not None]
        return min(known) if known else None

    @property
    def flops_share(self) -> float | None:
        """Attention's pairs over all layers but those of windows, of those that a dense prefill
        computes; `None` where they were not counted, as on a GPU unless recall is measured."""
        counted = [layer for layer in self.layers if not layer.is_windowed]
        shares = [1.0 if layer.reason else layer.share for layer in counted]
        known = [share for share in shares if share is not None]
        return fmean(known) if known and len(known) == len(shares) else None

    def __str__(self) -> str:
        """Returns a line such as `5 of 6 layers sparse, recall 0.94; dense: layers 0 (pattern)`."""
        text = f"{len(self.sparse)} of {len(self.layers)} layers sparse"
        if self.recall is not None:
            text += f", recall {self.recall:.3f} (lowest {self.lowest_recall:.3f})"
        if self.flops_share is not None:
            text += f", {self.flops_share:.0%} of the pairs"
        if self.source:
            text += f", patterns: {self.source}"
        reasons: dict[str, list[int]] = defaultdict(list)
        for layer in self.layers:
            if layer.reason:
                reasons[layer.reason].append(layer.layer)
        dense = (f"layers {_spans(numbers)} ({reason})" for reason, numbers in reasons.items())
        return "; dense: ".join([text, ", ".join(dense)]) if reasons else text


@dataclass
class Report:
    """What a context has seen so far; only prefills that ended well.

    Attributes:
        prefills: the latest last. Models that decode in several threads share one list.
    """

    prefills: list[PrefillReport] = field(default_factory=list)

    @property
    def last(self) -> PrefillReport | None:
        return self.prefills[-1] if self.prefills else None


def _spans(numbers: list[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
