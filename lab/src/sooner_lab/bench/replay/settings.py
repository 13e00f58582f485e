"""What `sooner bench replay` measures, and what it is to reach; fixed before any result."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import check_fields, option
from sooner.errors import SoonerError

from ..fields import names, numbers

METHODS = (
    "plain", "speculative", "speculative-best", "speculative-auto", "sd-tree", "prompt-lookup",
    "hsd", "eagle", "jacobi", "parallel",
)  # fmt: skip
SEQUENTIAL = ("speculative", "speculative-best", "speculative-auto")
"""Arms whose draft and target take turns: what `parallel` is held against, the fastest of them."""

PATTERNS = {"independent": 0.0, "clustered": 0.5}
"""Correlation of one token's being right with the next one's."""
CONTINUATIONS = 8
"""Continuations that a draft ranks; the right one may be none of them."""

NEVER_SLOWER = 0.97
"""`speculative-auto` over plain decoding, at every acceptance and number of rows."""
OF_THEORY, THEORY_FROM = 0.9, 0.6
"""`speculative-auto` over its theory, one row, from this acceptance on."""
PARALLEL_FROM = 0.7
"""Acceptance from which `parallel` is at least as fast as the sequential draft, one row."""


@dataclass(frozen=True)
class ReplaySettings:
    """Time every method at a set acceptance, beside theory from the same decoders' forwards.

    No model is trained: random decoders do the work, a script says what their logits decide.
    Exits with 1 when a text is not the script's, or an acceptance can't be. The JSON grows
    point by point.

    Attributes:
        methods: Only these; plain is always in.
        acceptance: Chances that a draft token is right; at one row both where it is independent of
            its neighbours and where wrong tokens are clustered.
        rows: Rows of the batches.
        batch_patterns: Patterns of batches of more than one row: independent, clustered.
        layers: Layers of the target, which is deep and narrow, so that a forward over 16 tokens
            costs little more than one over one, as on a GPU.
        width: Its width, a multiple of 32.
        draft_layers: Layers of the draft.
        draft_width: Its width, a multiple of 32.
        vocab: Token ids of both; a segment of the text for each row of the largest batch.
        prompt_tokens: Tokens of a prompt, a rough copy of the text included.
        new_tokens: Tokens that each row generates.
        texts: Texts of each arm at one row; of batches there is one.
        repeats: Timed runs of each arm on each text.
        sibling: Chance that a draft's next continuation is right where all likelier ones are wrong.
        num_draft_tokens: Draft tokens of `speculative`.
        max_draft_tokens: Most draft tokens of `speculative-best`, `speculative-auto`, `parallel`.
        lookup_tokens: Draft tokens of `prompt-lookup`.
        hsd_nodes: Most nodes of `hsd`.
        jacobi_window: Places of `jacobi`.
        eagle_nodes: Nodes of `eagle`'s trees.
        eagle_depth: Their depth.
        eagle_top_k: Continuations of a node.
        step_repeats: Timed forwards of each size.
        budget: Seconds; points that do not fit are left out and reported. 0 measures all.
        device: Where target and draft are.
        dtype: Of weights and states.
        threads: torch threads; a draft beside the target has a core of its own.
        seed: Of weights and scripts.
    """

    methods: tuple[str, ...] = names("method", METHODS, "plain")
    acceptance: tuple[float, ...] = numbers("--acceptance", (0.5, 0.7, 0.9), float, 0.5)
    rows: tuple[int, ...] = numbers("--rows", (1, 8, 32))
    batch_patterns: tuple[str, ...] = names("pattern", tuple(PATTERNS), default=("independent",))
    layers: int = option(24, 1)
    width: int = option(64, 1)
    draft_layers: int = option(3, 1)
    draft_width: int = option(64, 1)
    vocab: int = option(3072, 1, 65_536)
    prompt_tokens: int = option(160, 1)
    new_tokens: int = option(96, 2)
    texts: int = option(2, 1)
    repeats: int = option(2, 1)
    sibling: float = option(0.5, 0, 1)
    num_draft_tokens: int = option(5, 1)
    max_draft_tokens: int = option(16, 1)
    lookup_tokens: int = option(10, 1)
    hsd_nodes: int = option(32, 1)
    jacobi_window: int = option(16, 1)
    eagle_nodes: int = option(16, 1)
    eagle_depth: int = option(5, 1)
    eagle_top_k: int = option(4, 1)
    step_repeats: int = option(12, 1)
    budget: float = option(270.0, 0)
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = option(None, 1)
    seed: int = 20_261_123

    def __post_init__(self) -> None:
        """Refuse what no script can be made for."""
        check_fields(self)
        for value in self.acceptance:
            if not 0.5 <= value < 1:
                raise SoonerError(f"--acceptance is {value:g}; give 0.5 or more, and less than 1")
        for name in ("width", "draft_width"):
            if getattr(self, name) % 32:
                raise SoonerError(f"{name} is {getattr(self, name)}; give a multiple of 32")
        if self.new_tokens >= self.prompt_tokens:
            raise SoonerError(
                f"prompt_tokens is {self.prompt_tokens}, but a prompt holds a copy of the text of "
                f"{self.new_tokens} tokens; give more, or lower new_tokens"
            )
        # A wrong token lies half a circle away, outside of its row's own text.
        needed = max(self.new_tokens * max(self.rows), 2 * (self.new_tokens + CONTINUATIONS))
        if needed > self.vocab:
            raise SoonerError(
                f"vocab is {self.vocab}; {max(self.rows)} rows of {self.new_tokens} tokens each "
                f"need {needed} at least"
            )

    def points(self) -> list[tuple[int, str, float]]:
        """Return rows, pattern and acceptance of every point that is measured."""
        return [
            (rows, pattern, acceptance)
            for rows in self.rows
            for pattern in (PATTERNS if rows == 1 else self.batch_patterns)
            for acceptance in self.acceptance
        ]

    def inputs(self, rows: int) -> int:
        """Return texts of each arm in batches of so many rows; a large batch is many texts."""
        return min(self.texts, self.vocab // self.new_tokens) if rows == 1 else 1
