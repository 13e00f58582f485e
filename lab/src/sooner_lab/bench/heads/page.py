"""The page of `sooner bench heads`."""

from __future__ import annotations

from ..declared import times
from ..drafters import by_depth
from ..real.page import COLUMNS
from ..render import Columns, Page, Table

TRAINING: Columns = (
    ("format", "format", "{}"), (times("parameters", 1e-6), "parameters, M", "{:.1f}"),
    (times("bytes", 2**-20), "files, MiB", "{:.1f}"), ("samples", "answers", "{}"),
    ("steps", "steps", "{}"), (times("seconds", 1 / 60), "minutes", "{:.1f}"),
    ("steps_per_second", "steps/s", "{:.2f}"), ("first_loss", "first loss", "{:.3f}"),
    ("last_loss", "last loss", "{:.3f}"), (by_depth("held_out"), "held out, 1, 2, ...", "{}"),
)  # fmt: skip
PAGE = Page(
    lambda result: f"Heads trained on real text: {result['model']}",
    (
        Table(
            "Training", "training", TRAINING,
            "On the model's own greedy answers to prompts of other files than those below. `eagle` "
            "is Spec-VLA's recipe (its table 4) on real text; `dflash2`, `dspark` and `domino` are "
            "`dflash` with a head that reads the token before a place. By depth: share of drafts "
            "whose first tokens are all right, on the last answers of the recording, held out.",
        ),
        Table(
            "Acceptance on prompts of other files",
            lambda result: [arm for arm in result.get("arms") or [] if arm.get("depths")],
            (("workload", "workload", "{}"), ("method", "method", "{}"),
             (by_depth("depths"), "1, 2, ... tokens", "{}")),
            "Share of steps of chains of a fixed length in which at least so many draft tokens "
            "were accepted.",
        ),
        Table(
            "Speed", "arms", COLUMNS,
            "As in `sooner bench real`. A head is as it is built without options, and keeps what "
            "it learnt of sizes from one prompt of a workload to the next; `-chain` drafts a fixed "
            "number of tokens whatever it gains.",
        ),
    ),
    goals="Fixed before any result.",
)  # fmt: skip
