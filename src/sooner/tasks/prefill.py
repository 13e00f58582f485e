"""Builds the sparse prefills of the command line, and keeps their reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..models import adapt
from .loading import ModelPair
from .settings import CaptionSettings, parse_prefill

if TYPE_CHECKING:
    from ..sparse.prefill import Report

Context = Callable[[Any], AbstractContextManager]


class Prefill:
    """A sparse prefill that keeps its report.

    Args:
        context: called with the model, it is a context manager.
        chunk: prompt tokens that are prefilled at once; `None` is all of them.
    """

    def __init__(self, context: Context, chunk: int | None) -> None:
        self.context, self.chunk = context, chunk
        self.report: Report | None = None

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        with self.context(model) as report:
            self.report = report  # of patterns; the other contexts give none
            yield

    def as_dict(self) -> dict[str, Any]:
        """Returns name and figures, ready for JSON."""
        figures = {"name": getattr(self.context, "name", type(self.context).__name__)}
        if self.report is None or (seen := self.report.last) is None:
            return figures
        return figures | {
            "recall": seen.recall, "lowest_recall": seen.lowest_recall,
            "flops_share": seen.flops_share, "sparse_layers": len(seen.sparse),
            "layers": len(seen.layers), "patterns": seen.source,
            "dense": sorted({layer.reason for layer in seen.layers if layer.reason}),
            "tokens": sum(seen.tokens),
        }  # fmt: skip


def build_prefill(
    settings: CaptionSettings, pair: ModelPair, chunk: int | None = None
) -> Prefill | None:
    """Returns the prefill that `settings` name.

    Args:
        chunk: of the prompt. Patterns that may need it whole cut their MLPs instead, unless the
            settings themselves have the number, which is refused where it can't be.

    Raises:
        SoonerError: a pattern file that is none, or another model's.
    """
    if settings.prefill is None:
        return None
    from ..sparse.prefill import MMInference  # a sixth of the library, for those who ask for it
    from ..sparse.pruning import FastV
    from ..sparse.table import PatternTable

    choice = parse_prefill(settings.prefill)
    if choice.name != "fastv":
        table, source = None, ""
        if choice.file is not None:
            table = PatternTable.load(choice.file, adapt(pair.target.model))
            source = f"file '{choice.file}'"
        heads = chain(*table.layers) if table is not None else ()
        is_static = table is not None and not any(head.pattern.dynamic for head in heads)
        is_whole = settings.prefill_chunk is None and not is_static
        context = MMInference(
            table, mlp_chunk=chunk if is_whole else None, measure_recall=settings.prefill_recall,
            search=choice.name == "auto-search", source=source,
        )  # fmt: skip
        return Prefill(context, None if is_whole else chunk)
    pruner = FastV() if choice.ratio is None else FastV(choice.ratio)
    return Prefill(pruner, chunk)
