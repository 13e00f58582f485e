"""What `sooner bench replay` measures, and what it is to reach; fixed before any result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from sooner.checks import check_number, check_whole
from sooner.errors import SoonerError

from .script import CONTINUATIONS, PATTERNS

METHODS = (
    "plain", "speculative", "speculative-best", "speculative-auto", "sd-tree", "prompt-lookup",
    "hsd", "eagle", "jacobi", "parallel",
)  # fmt: skip
SEQUENTIAL = ("speculative", "speculative-best", "speculative-auto")
"""Arms whose draft and target take turns: what `parallel` is held against, the fastest of them."""

ACCEPTANCE = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
ROWS, FULL_ROWS = (1, 8, 32), (1, 2, 4, 8, 16, 32)

BUDGET = 270.0
"""Seconds of a default run, so that it ends within five minutes on a slower machine, too."""

NEVER_SLOWER = 0.97
"""`speculative-auto` over plain decoding, at every acceptance and number of rows."""
OF_THEORY, THEORY_FROM = 0.9, 0.6
"""`speculative-auto` over its theory, one row, from this acceptance on."""
PARALLEL_FROM = 0.7
"""Acceptance from which `parallel` is at least as fast as the sequential draft, one row."""


@dataclass(frozen=True)
class ReplaySettings:
    """What is measured.

    Attributes:
        methods: among `METHODS`.
        acceptance: chances that a draft token is right, independent of its neighbours, one row.
        clustered_acceptance: the same where wrong tokens are clustered.
        rows: of the batches.
        batch_acceptance: of batches of more than one row.
        batch_patterns: names of `script.PATTERNS`, of these batches.
        layers, width: of the target; deep and narrow, so that a forward over 16 tokens costs little
            more than one over one, as on a GPU.
        draft_layers, draft_width: of the draft.
        vocab: tokens of both; a segment of the text for each row of the largest batch.
        prompt_tokens: of a prompt, a rough copy of the text included.
        new_tokens: that each row says.
        texts: texts of each arm at one row; of batches there is one.
        repeats: timed runs of each arm on each text.
        sibling: chance that a draft's next continuation is right where all likelier ones are wrong.
        num_draft_tokens: of `speculative`.
        max_draft_tokens: most of `speculative-best`, `speculative-auto` and `parallel`.
        lookup_tokens: of `prompt-lookup`.
        hsd_nodes: most of `hsd`.
        jacobi_window: of `jacobi`.
        eagle_nodes, eagle_depth, eagle_top_k: of `eagle`'s trees.
        step_repeats: timed forwards of each size.
        budget: seconds; points that do not fit are left out, and told. `None`: all are measured.
        device, dtype, threads, seed: as everywhere. A draft beside the target has a core of its
            own.
    """

    methods: tuple[str, ...] = METHODS
    acceptance: tuple[float, ...] = ACCEPTANCE
    clustered_acceptance: tuple[float, ...] = (0.5, 0.7, 0.9)
    rows: tuple[int, ...] = ROWS
    batch_acceptance: tuple[float, ...] = (0.5, 0.9)
    batch_patterns: tuple[str, ...] = ("independent",)
    layers: int = 24
    width: int = 64
    draft_layers: int = 3
    draft_width: int = 64
    vocab: int = 3072
    prompt_tokens: int = 160
    new_tokens: int = 96
    texts: int = 2
    repeats: int = 2
    sibling: float = 0.5
    num_draft_tokens: int = 5
    max_draft_tokens: int = 16
    lookup_tokens: int = 10
    hsd_nodes: int = 32
    jacobi_window: int = 16
    eagle_nodes: int = 16
    eagle_depth: int = 5
    eagle_top_k: int = 4
    step_repeats: int = 12
    budget: float | None = BUDGET
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    seed: int = 20_261_123

    @classmethod
    def full(cls, **changes: object) -> Self:
        """Every acceptance, pattern and number of rows, more often."""
        more = cls(
            clustered_acceptance=ACCEPTANCE,
            rows=FULL_ROWS,
            batch_acceptance=ACCEPTANCE,
            batch_patterns=tuple(PATTERNS),
            texts=4,
            repeats=3,
            step_repeats=40,
            budget=None,
        )
        return replace(more, **changes)  # type: ignore[arg-type]

    def check(self) -> None:
        """Refuse what no script can be made for.

        Raises:
            SoonerError: the first value that makes no sense.
        """
        for value in (
            *self.acceptance,
            *self.clustered_acceptance,
            *self.batch_acceptance,
        ):
            check_number("--acceptance", value, 0.5, 1)
            if value == 1:
                raise SoonerError("--acceptance is 1: no draft is wrong; give less, such as 0.95")
        check_number("sibling", self.sibling, 0, 1)
        for name in ("layers", "width", "draft_layers", "draft_width", "new_tokens", "texts"):
            check_whole(name, getattr(self, name))
        for name in ("width", "draft_width"):
            if getattr(self, name) % 32:
                raise SoonerError(f"{name} is {getattr(self, name)}; give a multiple of 32")
        check_whole("new_tokens", self.new_tokens, 2)
        if self.new_tokens >= self.prompt_tokens:
            raise SoonerError(
                f"prompt_tokens is {self.prompt_tokens}, but a prompt holds a copy of the text of "
                f"{self.new_tokens} tokens; give more, or lower new_tokens"
            )
        # A wrong token lies half a circle away, outside of its row's own text.
        needed = max(self.new_tokens * max(self.rows), 2 * (self.new_tokens + CONTINUATIONS))
        if not needed <= self.vocab <= 65_536:
            raise SoonerError(
                f"vocab is {self.vocab}; {max(self.rows)} rows of {self.new_tokens} tokens each "
                f"need {needed} at least, and 65536 is the most"
            )

    def points(self) -> list[tuple[int, str, float]]:
        """Rows, pattern and acceptance of every point that is measured."""
        alone = {"independent": self.acceptance, "clustered": self.clustered_acceptance}
        batched = dict.fromkeys(self.batch_patterns, self.batch_acceptance)
        return [
            (rows, pattern, acceptance)
            for rows in self.rows
            for pattern, chances in (alone if rows == 1 else batched).items()
            for acceptance in chances
        ]

    def inputs(self, rows: int) -> int:
        """Texts of each arm in batches of so many rows; a large batch is many texts by itself."""
        return min(self.texts, self.vocab // self.new_tokens) if rows == 1 else 1
