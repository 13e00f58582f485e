"""`MMInference`: a model's prompts by sparse attention, as a context manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from ...checks import check_fields, option
from ...models import adapt
from ..attention.run import backend_for
from ..modality import PromptLayout
from ..patterns import HeadPattern
from ..table import PatternTable
from .forward_context import MIN_TOKENS, SparsePrefill, TimedPrefill, auto_pattern
from .hooks import PrefillHooks
from .report import Report


@dataclass(frozen=True)
class MMInference:
    """Prefills prompts with sparse attention that knows modalities. The mode is *approximate*.

    `with MMInference.load("patterns.json")(model): ...` makes attention over prompts sparse, layer
    by layer and head by head as the table says (Li et al. 2025, MMInference), be they prefilled by
    sooner's methods or by HF's own `generate`. Decoding stays what it was, to the bit. On exit, and
    after exceptions, no trace is left. A draft may have a context of its own; a pruner, such as
    `FastV`, may be at work too, and patterns then hold for the tokens it has left.

    Layers run the model's own attention where all their heads are `Dense`, and where the prompt is
    shorter than `dense_below` tokens; if all do, the result is *exact*. What happened is in
    `stats.notes`, and in the report that the context hands out, with what was kept, if measured.

    Args:
        table: the patterns; one pattern for all heads; or `None` for defaults that suit the model.
        dense_below: prompt tokens below which attention stays dense; `None` takes the table's, or,
            without a table, times both on each prompt's own states; see `TimedPrefill`.
        mlp_chunk: tokens that go through an MLP at once, for long prompts; `None` is all of them.
        backend: `reference`, `fused` or `triton`; `None` is the best that there is.
        measure_recall: measure what was kept: the share of dense attention on 64 queries of each
            row, and of its pairs. Takes longer than looking for the lines.

    Raises:
        SoonerError: a value out of range.
    """

    table: PatternTable | HeadPattern | None = None
    dense_below: int | None = option(None, 0)
    mlp_chunk: int | None = option(None, 1)
    backend: str | None = None
    measure_recall: bool = False
    name: ClassVar[str] = "MMInference"
    mode: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}: ")

    @classmethod
    def load(cls, path: Path | str, **options: Any) -> MMInference:
        """Returns the patterns of a file.

        Raises:
            SoonerError: as `PatternTable.load`.
        """
        return cls(PatternTable.load(path), **options)

    @classmethod
    def auto(cls, **options: Any) -> MMInference:
        """Returns defaults that suit the kind of model; no patterns were searched for it."""
        return cls(None, **options)

    @contextmanager
    def __call__(self, model: Any) -> Iterator[Report]:
        """Sparse prefills on `model` until the block ends.

        Raises:
            SoonerError: the table is another model's.
            UnsupportedError: another such context is at work on the model, or its attention can't
                be replaced; or, later, a prompt comes in chunks.
        """
        adapter = adapt(model)
        if isinstance(self.table, PatternTable):
            self.table.check(adapter)
        report = Report()

        def start(layouts: list[PromptLayout], device: torch.device) -> SparsePrefill:
            backend, kind = backend_for(device, self.backend), SparsePrefill
            table, below = self.table, self.dense_below
            if table is None:
                longest = max(len(layout.where()) for layout in layouts)
                table = PatternTable.uniform(adapter, auto_pattern(adapter, longest), MIN_TOKENS)
                kind = TimedPrefill if below is None else SparsePrefill
            elif not isinstance(table, PatternTable):
                table = PatternTable.uniform(adapter, table)
            below = table.dense_below if below is None else below
            return kind(table, layouts, below, backend, self.measure_recall)

        hooks = PrefillHooks(adapter, start, report)
        with ExitStack() as stack:
            if self.mlp_chunk is not None:
                from ..mlp_chunks import chunked_mlps

                stack.enter_context(chunked_mlps(adapter, self.mlp_chunk))
            stack.enter_context(hooks)
            yield report
