"""The page of `sooner bench prefill`: MMInference's figures 5, 10, 12 to 14 and 16."""

from __future__ import annotations

from ...needles import ResultGrid
from ..declared import Data
from ..plots import Figure, Panel
from ..render import Columns, Page, ReportTable, Table, pivot
from .needle_plot import needle_heatmap

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
    ("recall", "recall", "{:.3f}"), ("flops_share", "FLOPs", "{:.1%}"),
    ("logit_error", "logit error", "{:.4f}"), ("agreement", "next token agrees", "{:.1%}"),
)  # fmt: skip
DUELS: Columns = (
    ("states", "states", "{}"), ("our_share", "FLOPs, ours", "{:.1%}"),
    ("ours", "error, ours", "{:.4f}"), ("their_share", "FLOPs, rival", "{:.1%}"),
    ("theirs", "error, rival", "{:.4f}"), ("rival", "rival", "{}"),
    ("rival_far", "its far lines", "{}"), ("queries", "queries", "{}"),
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


def _regions(result: Data) -> list[ReportTable]:
    regions = result.get("regions")
    if not regions:
        return []
    rows = [
        [source, *(f"{value:.3f}" for value in line)]
        for source, line in zip(regions["sources"], regions["recall"], strict=True)
    ]
    claims = [
        f"that {each['claim']} {'is' if each['holds'] else 'is not'} so ({each['here']:.3f} "
        f"against {each['beside']:.3f}, wanted {each['wanted']})"
        for each in regions.get("claims", [])
    ]
    remark = f"Figure 12 of MMInference on this model: {'; '.join(claims)}." if claims else ""
    heads = ["index from", *regions["queries"]]
    return [ReportTable("Recall of an index from one region on others", heads, rows, remark)]


def _planted(result: Data) -> list[ReportTable]:
    planted = result.get("planted")
    if not planted:
        return []
    noises = list(planted["noise"])
    rows = [
        [kind, *(f"{rates[str(noise)]:.0%}" for noise in noises)]
        for kind, rates in planted["rates"].items()
    ]
    remark = (
        f"{planted['heads']} heads a kind and noise, {planted['tokens']} tokens; noise is the "
        "standard deviation of scores in nats where lines are 10 high."
    )
    heads = ["planted", *(f"noise {noise:g}" for noise in noises)]
    return [ReportTable("Planted heads that the search identifies", heads, rows, remark)]


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


def _heatmap(result: Data) -> object:
    return needle_heatmap([ResultGrid.from_dict(grid) for grid in result["needles"]])


PAGE = Page(
    lambda result: f"Prefill: {result['model']}",
    (
        Table("One attention layer", "layer", LAYER, _layer),
        Table(
            "Whole prefill",
            "model_rows",
            MODEL,
            "*recall* is each row's own: the share of dense attention's weights that the timed "
            "patterns keep in this model, mean over layers and heads, on 64 even queries, measured "
            "in a run that is not timed; *FLOPs* is the share of causal pairs, counted exactly; "
            "*next token agrees*: of the dense continuation's tokens, the share that the arm "
            "predicts as the dense model does behind the same prefix. `ours` is searched on "
            "another clip.",
        ),
        _regions,
        Table(
            "Output error at equal FLOPs",
            "duels",
            DUELS,
            "The rival is the vertical-slash of least error among those that cost as much, and has "
            "slash lines beyond the nearest 64 in any case. *queries*: on which errors were "
            "measured, of all heads; none of them chose a pattern, its lines or the rival.",
        ),
        _planted,
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
        Figure(
            "needles",
            "Needle in a video, and in video and text (figures 5, 13, 14)",
            needs="needles",
            drawing=_heatmap,
        ),
    ),
    retired=("regions", "duels", "planted"),
    goals="*at recall*: what the very arm of the figure keeps, in the same run's table.",
)  # fmt: skip
