"""The runs whose ids are frozen: every method and family, greedy and sampled, in fp32.

Text runs are the cells of `method_matrix` (ragged batches, ends inside drafts, limits), those of
the parsers beside it, and some under processors that read prefixes; picture runs are the cells of
`models.test_canvas_exactness`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import canvas_reference
import method_matrix as matrix
import sooner
import tiny
import tiny_canvas
from models import test_canvas_exactness as pictures
from models import test_parsers as parsers
from sooner.stats.run import Stats

SEED = 3
TIMED = (
    "noisy-auto", "eagle-auto", "hsd-auto", "ddtree-auto", "eagle3-auto", "parallel",
    "prompt-lookup-auto", "sd-tree-auto", "sparse-to-dense-auto",
)  # fmt: skip
"""Methods whose drafts are as long as the clock says: their greedy ids alone are kept."""

METHODS_AT_FIRST = 29
"""Length of `method_matrix.METHODS` when the runs were numbered: settings go by it."""

DRAWN: tuple[dict[str, Any], ...] = (
    {"do_sample": True},
    {"do_sample": True, "temperature": 0.8, "top_k": 24, "top_p": 0.95},
    {"do_sample": True, "repetition_penalty": 1.2},
)
READING: tuple[dict[str, Any], ...] = (
    {"do_sample": False, "repetition_penalty": 1.3},
    {"do_sample": False, "no_repeat_ngram_size": 2, "min_new_tokens": 9},
)

Ids = list[list[int]]


@dataclass(frozen=True)
class TextRun:
    """One call of `sooner.generate` or of `generate` with `custom_generate`.

    Attributes:
        entry: `session`, `custom_generate`.
        new: limit on new tokens.
        ends: whether a token that appears half-way is the end of sequence.
        turn: which of `DRAWN` or `READING` it is decoded with.
        kind_of: `greedy`, `reading` (greedy under processors that read prefixes) or `sampled`.
        is_slow: left out of a quick run of the tests.
    """

    family: str
    method: str
    kind: str
    rows: int
    entry: str
    new: int
    ends: bool
    turn: int = 0
    kind_of: str = "greedy"
    is_slow: bool = False

    def __str__(self) -> str:
        parts = (self.family, self.method, self.kind, f"b{self.rows}", self.entry, f"n{self.new}")
        more = ("eos",) if self.ends else ()
        return "-".join((*parts, *more, *(() if self.kind_of == "greedy" else (self.kind_of,))))

    @property
    def is_timed(self) -> bool:
        return self.method in TIMED

    @property
    def is_greedy(self) -> bool:
        return self.kind_of != "sampled"

    def end(self) -> int | None:
        """The end of sequence to freeze; HF's greedy ids of this machine say it."""
        return matrix.middle_token(self.family, self.kind, self.rows) if self.ends else None

    def options(self, end: int | None) -> dict[str, Any]:
        limits = {"max_new_tokens": self.new, "eos_token_id": end}
        if self.kind_of == "greedy":
            return {**limits, "do_sample": False}
        settings = READING if self.kind_of == "reading" else DRAWN
        return {**limits, **settings[self.turn % len(settings)]}

    def decode(self, end: int | None) -> tuple[Ids, Stats]:
        """New tokens of each row, and what the run counted."""
        model, inputs = tiny.model(self.family), tiny.inputs(self.family, self.kind, self.rows)
        method = matrix.METHODS[self.method](self.family)
        options = self.options(end)
        if self.entry == "session":
            result = sooner.generate(model, inputs, method, seed=SEED, **options)
            return result.tokens, result.stats
        output = model.generate(
            **inputs, **options, custom_generate=method, return_dict_in_generate=True
        )
        new = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        return [cut(row, end) for row in new], output.stats

    def of_hf(self, end: int | None) -> Ids:
        """What HF's own `generate` says here, each row up to its end."""
        torch.manual_seed(SEED)
        inputs = tiny.inputs(self.family, self.kind, self.rows)
        said = tiny.model(self.family).generate(**inputs, **self.options(end))
        return [cut(row, end) for row in said[:, inputs["input_ids"].shape[1] :].tolist()]


@dataclass(frozen=True)
class PictureRun:
    """One call of `sooner.draw`; what HF says of it are the family's own greedy codes."""

    case: pictures.Case
    do_sample: bool

    is_timed = False
    is_slow = True
    family = ""  # of `tiny`; pictures are drafted without a model

    @property
    def is_greedy(self) -> bool:
        return not self.do_sample

    def __str__(self) -> str:
        return f"{self.case}-{'sampled' if self.do_sample else 'greedy'}"

    def end(self) -> None:
        return None

    def decode(self, end: int | None) -> tuple[Ids, Stats]:
        drawing = sooner.draw(
            tiny_canvas.canvas(self.case.family),
            tiny_canvas.inputs(self.case.family, self.case.rows),
            pictures.METHODS[self.case.method],
            count=self.case.count,
            seed=SEED,
            do_sample=self.do_sample,
            guidance=self.case.guidance,
        )
        return drawing.tokens.tolist(), drawing.stats

    def of_hf(self, end: int | None) -> Ids:
        case = self.case
        return canvas_reference.drawn(case.family, case.rows, case.guidance, case.count)


Run = TextRun | PictureRun


@functools.cache
def of_draft(family: str) -> Ids:
    """What HF's `generate` makes of the noisy copy that most drafts of a family come from."""
    inputs = tiny.inputs(family, "text", 3)
    options = {"max_new_tokens": matrix.LONG, "eos_token_id": None, "do_sample": False}
    return tiny.noisy(family).generate(**inputs, **options).tolist()


def cut(row: list[int], end: int | None) -> list[int]:
    """A row up to its end of sequence, padding left out."""
    return row[: row.index(end) + 1] if end is not None and end in row else row


def turns() -> Iterator[tuple[int, matrix.Case]]:
    """The cells, each with a number that does not change where further methods are listed last."""
    for place, case in enumerate(matrix.cases()):
        family, method = divmod(place, len(matrix.METHODS))
        yield family * METHODS_AT_FIRST + method, case


def greedy() -> Iterator[Run]:
    """Runs whose ids no change of the engine may touch."""
    for case in matrix.cases():
        for new in (matrix.LONG, case.short):
            yield TextRun(
                case.family, case.method, case.kind, case.rows, case.entry, new, case.ends,
                is_slow=new != matrix.LONG,
            )  # fmt: skip
    for case in parsers.CASES:
        yield TextRun(
            case.family, case.method, case.kind, case.rows, case.entry, matrix.LONG, case.ends,
            is_slow=True,
        )  # fmt: skip
    for turn, case in turns():
        if turn % 5 == 0:
            yield TextRun(
                case.family, case.method, case.kind, case.rows, "session", 13, case.ends,
                turn // 5, "reading", is_slow=True,
            )  # fmt: skip
    yield from (PictureRun(case, do_sample=False) for case in pictures.cases())


def sampled() -> Iterator[Run]:
    """Runs of one seed: other random numbers give other ids, and are frozen anew."""
    for turn, case in turns():
        if case.method not in TIMED:
            yield TextRun(
                case.family, case.method, case.kind, case.rows, "session", 13, case.ends, turn,
                "sampled", is_slow=turn % 3 != 0,
            )  # fmt: skip
    yield from (PictureRun(case, do_sample=True) for case in pictures.cases())


PARTS = {"greedy": greedy, "sampled": sampled}


def counts(stats: Stats) -> list[Any]:
    """Target forwards, draft tokens, and accepted tokens of a step -> row steps."""
    histogram = sorted(stats.acceptance_histogram.items())
    return [stats.nfe, stats.num_draft_tokens, [list(pair) for pair in histogram]]
