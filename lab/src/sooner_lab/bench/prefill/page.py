"""The page of `sooner bench prefill`: MMInference's figures 5, 10, 12 to 14 and 16."""

from __future__ import annotations

from ..declared import Data
from ..plots import Figure, Panel
from ..render import Columns, Page, ReportTable, Table, pivot
from .settings import RETIRED

LAYER: Columns = (
    ("tokens", "tokens", "{}"), ("method", "arm", "{}"),
    ("seconds", "seconds", "{:.3f}"), ("index_seconds", "index s", "{:.3f}"),
    ("speedup", "speed-up", "{:.2f}×"), ("recall", "recall", "{:.3f}"),
    ("error", "output error", "{:.3f}"), ("flops_share", "FLOPs", "{:.1%}"),
    ("of_allowed", "of what FLOPs allow", "{:.0%}"),
)  # fmt: skip
MODEL: Columns = (
    ("tokens", "tokens", "{}"), ("method", "arm", "{}"),
    ("mode", "mode", "{}"), ("seconds", "seconds", "{:.2f}"), ("speedup", "speed-up", "{:.2f}×"),
    ("recall", "recall", "{:.3f}"), ("recall_all", "over all layers", "{:.3f}"),
    ("flops_share", "FLOPs", "{:.1%}"), ("logit_error", "logit error", "{:.4f}"),
    ("agreement", "next token agrees", "{:.1%}"),
)  # fmt: skip


def _layer(result: Data) -> str:
    about = result["settings"]
    return (
        f"{about['heads']} heads of {about['head_dim']}, made-up states with the grid structure of "
        f"video, {about['frame']} tokens a frame: *recall* here is of these states, and says "
        "nothing of a model. *index s* is part of *seconds*; *FLOPs* is the share of causal pairs, "
        "counted exactly; recall and error on 256 even queries. `planted` is the structure that "
        "the states were made with, nothing was searched for it; `ours` was searched on other such "
        "states of the shortest length; `vertical-slash` computes the windows of MInference's "
        f"kernel. The backend was `{result['backend']}`."
    )


def _model(result: Data) -> str:
    trained, layers = (result["model_rows"][0].get(key) for key in ("trained_layers", "layers"))
    over = "all layers, silent copies of trained ones included"
    if trained:
        over = f"the {trained} trained layers of {layers}; until commit `819b639d` over all of them"
    return (
        "*recall* is each row's own: the share of dense attention's weights that the timed "
        f"patterns keep in this model, mean over heads and {over}. It is of 64 even queries, "
        "measured in a run that is not timed; *FLOPs* is the share of causal pairs, counted "
        "exactly; *next token agrees*: of the dense continuation's tokens, the share that the arm "
        "predicts as the dense model does behind the same prefix. `ours` is searched on another "
        "clip or text."
    )


def _needles(result: Data) -> list[ReportTable]:
    """Right answers of each task, a line an arm and length."""
    tables = []
    for kind in dict.fromkeys(grid["kind"] for grid in result.get("needles", [])):
        cells = [
            {"arm": f"{grid['name']}, {length} frames", "depth": depth, "text": f"{right}/{count}"}
            for grid in result["needles"]
            if grid["kind"] == kind
            for length, rights, counts in zip(
                grid["lengths"], grid["right"], grid["asked"], strict=True
            )
            for depth, right, count in (
                *zip(grid["depths"], rights, counts, strict=True),
                ("all", sum(rights), sum(counts)),
            )
        ]
        heads, rows = pivot(cells, "arm", "depth", lambda cell: cell["text"])
        tables.append(ReportTable(f"{kind.upper()}: right answers by depth", heads, rows))
    return tables


def _longest(result: Data) -> list[Data]:
    rows = result.get("layer") or []
    longest = max((row["tokens"] for row in rows), default=0)
    return [{**row, "work": 100 * row["flops_share"]} for row in rows if row["tokens"] == longest]


PAGE = Page(
    lambda result: f"Prefill: {result['model']}",
    (
        Table("One attention layer", "layer", LAYER, _layer),
        Table("Whole prefill", "model_rows", MODEL, _model),
        _needles,
    ),
    (
        Figure(
            "layer",
            "One attention layer by prompt length (figure 16)",
            (
                Panel(
                    "layer", "tokens", "seconds", "prompt, tokens", "seconds", "method", log="xy"
                ),
                Panel(
                    "layer", "tokens", "index_seconds", "prompt, tokens",
                    "seconds of that for the index", "method", log="x",
                ),
            ),
        ),
        Figure(
            "model",
            "The prefill of a whole model by prompt length (figure 10)",
            (
                Panel(
                    "model_rows", "tokens", "seconds", "prompt, tokens", "seconds", "method",
                    log="xy",
                ),
                Panel(
                    "model_rows", "tokens", "speedup", "prompt, tokens", "times faster than dense",
                    "method", log="x", level=1.0,
                ),
            ),
        ),
        Figure(
            "trade",
            "Work against error at the greatest length",
            (
                Panel(
                    _longest, "work", "error", "FLOPs, % of dense", "relative error of the output",
                    "method", kind="mark",
                ),
                Panel(
                    _longest, "work", "speedup", "FLOPs, % of dense", "times faster than dense",
                    "method", kind="mark",
                ),
            ),
        ),
        Figure("regions", "An index from one modality, used on others (figure 12)",
               needs="regions"),
    ),
    retired={"9362df8": RETIRED},
    goals="*at recall*: what the very arm of the figure keeps, in the same run's table.",
)  # fmt: skip
