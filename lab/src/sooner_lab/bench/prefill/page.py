"""The page of `sooner bench prefill`: MMInference's figures 2, 5, 10, 12 to 14 and 16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..declared import Data, rows_of
from ..plots import Figure, Panel
from ..render import Columns, Page, ReportTable, Table, pivot

ALONE, MIXED = ("v-niah", "prose"), ("mm-niah", "mixed")
"""Kinds of haystacks: of one modality or sort of text, and of two in turns."""
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

RIVALS: Columns = (
    ("tokens", "tokens", "{}"), ("method", "arm", "{}"), ("pairs", "pairs", "{:.2%}"),
    ("seconds", "seconds", "{:.3f}"), ("recall", "recall", "{:.3f}"),
    ("error", "output error", "{:.3f}"),
)  # fmt: skip
ABLATIONS = [column for column in RIVALS if column[0] != "seconds"]
REMARK = (
    "Searched anew on the other prompt without a pattern or boundary, at the same budget. *index "
    "of another input*: the very pairs that `ours` computes there. *ours behind visionzip* is held "
    "against VisionZip's own dense attention, as in table 4."
)


def _layer(result: Data) -> str:
    about = result["settings"]
    return (
        f"{about['heads']} heads of {about['head_dim']}, made-up states with the grid structure of "
        f"video, {about['frame']} tokens a frame: *recall* here is of these states, and says "
        "nothing of a model. *index s* is part of *seconds*; *FLOPs* is the share of causal pairs, "
        "counted exactly; recall and error on 256 queries. `planted` is the structure that "
        "the states were made with, nothing was searched for it; `ours` was searched on other such "
        "states of the shortest length; `vertical-slash` computes the union of its lines, before "
        "commit `ca2358fa` the windows of MInference's kernel. The backend was "
        f"`{result['backend']}`."
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


def _rivals(table: str) -> Callable[[Data], list[Data]]:
    return lambda result: [row for row in rows_of(result, "rivals") if row["equal"] == table]


def _equal(result: Data) -> str:
    dense = result["rivals"][0]
    return (
        f"States of {dense['layers']} trained layers on a prompt that nothing was searched on: "
        "`ours` and MInference's kinds of heads were chosen on another one as long. In each layer "
        "an arm computes at most as many pairs as `ours`, counted exactly, or takes no longer, as "
        "far as its smallest size allows; *seconds* are sums over layers, the index inside. "
        "VisionZip's error is that of the tokens that stay, and holds what layers below lost. 95 % "
        f"of the attention lies on {dense['pairs95']:.1%} of the pairs (figure 2: 5.78 % in a "
        "model of video and 1.79 % in one of text, at 128k tokens)."
    )


def _needles(result: Data) -> list[ReportTable]:
    """Return the right answers of each task, a line an arm and length."""
    tables = []
    for kind in dict.fromkeys(grid["kind"] for grid in result.get("needles", [])):
        cells = [
            {"arm": f"{grid['name']}, {length} {grid['unit']}", "depth": depth,
             "text": f"{right}/{count}"}
            for grid in result["needles"]
            if grid["kind"] == kind
            for length, rights, counts in zip(
                grid["lengths"], grid["right"], grid["asked"], strict=True
            )
            for depth, right, count in (
                *zip(grid["depths"], rights, counts, strict=True),
                ("all", sum(rights), sum(counts)),
            )
        ]  # fmt: skip
        heads, rows = pivot(cells, "arm", "depth", lambda cell: cell["text"])
        tables.append(ReportTable(f"{kind.upper()}: right answers by depth", heads, rows))
    return tables


def _grids(result: Data, kinds: Sequence[str], arms: Sequence[str]) -> list[Data]:
    return [g for g in result.get("needles", []) if g["kind"] in kinds and g["name"] in arms]


def _draw_grids(result: Data, kinds: Sequence[str], arms: Sequence[str]) -> Any:
    """Draw right answers by length and depth, a panel for each kind and arm."""
    from matplotlib.figure import Figure as Canvas

    grids = _grids(result, kinds, arms)
    figure = Canvas(figsize=(1.6 * len(grids) + 0.6, 2.6), layout="constrained")
    for axis, grid in zip(figure.subplots(1, len(grids), squeeze=False)[0], grids, strict=True):
        shares = np.divide(grid["right"], grid["asked"]).T  # [depths, lengths]
        axis.imshow(shares, "RdYlGn", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(grid["lengths"])), grid["lengths"], fontsize=6)
        axis.set_yticks(range(len(grid["depths"])), grid["depths"], fontsize=6)
        axis.set_title(f"{grid['name']}, {grid['kind']}", fontsize=8)
        axis.set(xlabel=grid["unit"], ylabel="depth")
    return figure


PAGE = Page(
    lambda result: f"Prefill: {result['model']}",
    (
        Table("One attention layer", "layer", LAYER, _layer),
        Table("Whole prefill", "model_rows", MODEL, _model),
        _needles,
        Table("Rivals at equal pairs", _rivals("pairs"), RIVALS, _equal),
        Table("Rivals at equal time", _rivals("time"), RIVALS),
        Table("Ablations", "ablations", ABLATIONS, REMARK),
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
        *(
            Figure(f"figure{number}", f"Right answers by length and depth: {what} "
                   f"(figure {number})", needs=partial(_grids, kinds=kinds, arms=arms),
                   drawing=partial(_draw_grids, kinds=kinds, arms=arms))
            for number, what, kinds, arms in (
                (5, "dense and searched", ALONE + MIXED, ("dense", "ours")),
                (13, "the baselines", ALONE, ("a-shape", "tri-shape", "vertical-slash")),
                (14, "the baselines, two kinds in turns", MIXED, ("tri-shape", "vertical-slash")),
            )
        ),
        Figure("regions", "An index from one modality, used on others (figure 12)",
               needs="regions"),
    ),
    retired={"9362df8": ("regions", "duels", "planted"), "ac3015a": ("heads",)},
    goals="*at recall*: what the very arm of the figure keeps, in the same run's table.",
)  # fmt: skip
