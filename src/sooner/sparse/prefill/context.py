"""`MMInference`: a model's prompts by sparse attention, as a context manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...checks import check_fields, option
from ...engine.interface import Prompt
from ...models import adapt
from ..attention.run import backend_for
from ..modality import PromptLayout
from ..patterns import BlockTopP, HeadPattern, Pattern, VerticalSlash
from ..table import PatternTable, windowed_layers
from ..tables import CACHED, load_table, search_table
from .forward_context import MIN_TOKENS, SparsePrefill, TimedPrefill
from .hooks import PrefillHooks
from .report import Report

SEARCH_TOKENS = 4096
"""Prompt tokens from which `search` takes a prompt: the sizes of patterns follow its length."""

DEFAULTS = "defaults, nothing was searched"

BLOCK_TOKENS = 1 << 17
"""Prompt tokens up to which blocks are the default. Their estimate has a number for each head and
pair of blocks, 0.5 GB of 28 heads here, and sixty-four times that at a million tokens."""


def default_pattern(tokens: int) -> Pattern:
    """Returns what all heads run on a prompt of so many tokens where there is no table."""
    return (BlockTopP if tokens <= BLOCK_TOKENS else VerticalSlash).sized(tokens)


@dataclass(frozen=True)
class MMInference:
    """Prefills prompts with sparse attention that knows modalities. The mode is *approximate*.

    `with MMInference.load("patterns.json")(model): ...` makes attention over prompts sparse, layer
    by layer and head by head as the table says (Li et al. 2025, MMInference), be they prefilled by
    sooner's methods or by HF's own `generate`. Decoding stays what it was, to the bit. On exit, and
    after exceptions, no trace is left. A draft may have a context of its own; a pruner, such as
    `FastV`, may be at work too, and patterns then hold for the tokens it has left.

    Layers run the model's own attention where all their heads are `Dense`, where they see a window
    or a chunk only, as Gemma's do, and where the prompt is shorter than `dense_below` tokens; if
    all do, the result is *exact*. What happened is in
    `stats.notes`, and in the report that the context hands out, with what was kept, if measured.

    Args:
        table: the patterns; one pattern for all heads; or `None` for those that `load_table` has
            for the model, else defaults, which are timed on each prompt's states (`TimedPrefill`).
        dense_below: prompt tokens below which attention stays dense; `None` takes the table's, and
            a number that is given times nothing.
        mlp_chunk: tokens that go through an MLP at once, for long prompts; `None` is all of them.
        backend: `reference`, `fused` or `triton`; `None` is the best that there is.
        measure_recall: measure the share of dense attention that was kept, on 64 queries of each
            row. Takes longer than looking for the lines.
        search: without any table, search one on the first prompt of `SEARCH_TOKENS` tokens or more
            that comes alone, and save it for the next time. Takes as long as ten prefills or more.
        source: where `table` comes from, for reports.

    Raises:
        SoonerError: a value out of range.
    """

    table: PatternTable | HeadPattern | None = None
    dense_below: int | None = option(None, 0)
    mlp_chunk: int | None = option(None, 1)
    backend: str | None = None
    measure_recall: bool = False
    search: bool = False
    source: str = ""
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
        return cls(PatternTable.load(path), **{"source": f"file '{path}'", **options})

    @classmethod
    def auto(cls, **options: Any) -> MMInference:
        """Returns what is known for the model: a table, or else defaults; see `table`, `search`."""
        return cls(None, **options)

    @contextmanager
    def __call__(self, model: Any) -> Iterator[Report]:
        """Sparse prefills on `model` until the block ends.

        Raises:
            SoonerError: the table is another model's.
            UnsupportedError: another such context is at work on the model, or its attention can't
                be replaced; or, later, a prompt comes in chunks and patterns look at its end.
        """
        adapter = adapt(model)
        if isinstance(self.table, PatternTable):
            self.table.check(adapter)
        report, known = Report(), load_table(adapter) if self.table is None else None

        def start(layouts: list[PromptLayout], embed: Callable[[], Prompt]) -> SparsePrefill:
            nonlocal known
            table, source, below = self.table, self.source, self.dense_below
            if table is None:
                longest = max(len(layout.where()) for layout in layouts)
                if known is None and self.search and len(layouts) == 1 and longest >= SEARCH_TOKENS:
                    known = search_table(adapter, embed()), CACHED
                default = PatternTable.uniform(adapter, default_pattern(longest), MIN_TOKENS)
                table, source = known or (default, DEFAULTS)
            elif not isinstance(table, PatternTable):
                table = PatternTable.uniform(adapter, table)
            is_timed = self.table is None and below is None
            return (TimedPrefill if is_timed else SparsePrefill)(
                table, layouts, table.dense_below if below is None else below,
                backend_for(adapter.device, self.backend), self.measure_recall, source,
                windowed_layers(adapter),
            )  # fmt: skip

        hooks = PrefillHooks(adapter, start, report)
        with ExitStack() as stack:
            if self.mlp_chunk is not None:
                from ..mlp_chunks import chunked_mlps

                stack.enter_context(chunked_mlps(adapter, self.mlp_chunk))
            stack.enter_context(hooks)
            yield report
