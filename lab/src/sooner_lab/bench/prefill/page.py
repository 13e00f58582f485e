"""The tables of a prefill result, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, pictures, sections

FIGURES = {
    "layer": "One attention layer by prompt length (figure 16)",
    "model": "The prefill of a whole model by prompt length (figure 10)",
    "trade": "Work against error at the greatest length",
    "regions": "An index from one modality, used on others (figure 12)",
    "needles": "Needle in a video, and in video and text (figures 5, 13, 14)",
}
LAYER = (
    ("seconds", "seconds", "{:.3f}"), ("index_seconds", "index s", "{:.3f}"),
    ("speedup", "speed-up", "{:.2f}×"), ("recall", "recall", "{:.3f}"),
    ("error", "output error", "{:.3f}"), ("flops_share", "FLOPs", "{:.1%}"),
    ("of_allowed", "of what FLOPs allow", "{:.0%}"),
)  # fmt: skip
MODEL = (
    ("mode", "mode", "{}"), ("seconds", "seconds", "{:.2f}"), ("speedup", "speed-up", "{:.2f}×"),
    ("recall", "recall", "{:.3f}"), ("flops_share", "FLOPs", "{:.1%}"),
    ("logit_error", "logit error", "{:.4f}"), ("agreement", "next token agrees", "{:.1%}"),
)  # fmt: skip


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """Every table that the result has figures for, the goals first."""
    found = [_goals(result["goals"])] if result.get("goals") else []
    found += _by_length("One attention layer", result.get("layer"), LAYER, _layer_remark(result))
    found += _by_length("Whole prefill", result.get("model_rows"), MODEL, MODEL_REMARK)
    if regions := result.get("regions"):
        found.append(_regions(regions))
    if duels := result.get("duels"):
        found.append(_duels(duels))
    if planted := result.get("planted"):
        found.append(_found(planted))
    kinds = {grid["kind"]: None for grid in result.get("needles", [])}
    for kind in kinds:
        found.append(_needles([grid for grid in result["needles"] if grid["kind"] == kind]))
    return found


MODEL_REMARK = (
    "*recall* is each row's own: the share of dense attention's weights that the timed patterns "
    "keep in this model, mean over layers and heads, on 64 even queries, measured in a run that "
    "is not timed; *FLOPs* is the share of causal pairs, counted exactly; *next token agrees*: of "
    "the dense continuation's tokens, the share that the arm predicts as the dense model does "
    "behind the same prefix. `ours` is searched on another clip."
)


def _layer_remark(result: dict[str, Any]) -> str:
    told = result["settings"]
    return (
        f"{told['heads']} heads of {told['head_dim']}, made-up states with the grid structure of "
        f"video, {told['frame']} tokens a frame: *recall* here tells of these states, and nothing "
        "of a model. *index s* is part of *seconds*; *FLOPs* is the share of causal pairs, counted "
        "exactly; recall and error on 256 even queries. `planted` is the structure that the states "
        "were made with, nothing was searched for it; `ours` was searched on other such states of "
        "the shortest length; `vertical-slash` computes the windows of MInference's kernel. The "
        f"backend was `{result['backend']}`."
    )


def _by_length(
    title: str, rows: list[dict[str, Any]] | None, columns: tuple, remark: str
) -> list[ReportTable]:
    if not rows:
        return []
    heads = ["tokens", "arm", *(name for _, name, _ in columns)]
    body = [
        [
            str(row["tokens"]),
            row["method"],
            *(cell(row.get(key), form) for key, _, form in columns),
        ]
        for row in rows
    ]
    return [ReportTable(title, heads, body, remark)]


def _goals(goals: list[dict[str, Any]]) -> ReportTable:
    rows = [
        [
            one["goal"],
            f"at least {one['wanted']:g}",
            f"{one['reached']:.2f}",
            cell(one.get("recall"), "{:.3f}"),
            _yes(one["met"]),
        ]
        for one in goals
    ]
    remark = "*at recall*: what the very arm of the figure keeps, in the same run's table."
    return ReportTable("Goals", ["figure", "wanted", "reached", "at recall", "met"], rows, remark)


def _regions(regions: dict[str, Any]) -> ReportTable:
    names = regions["queries"]
    rows = [
        [source, *(f"{value:.3f}" for value in line)]
        for source, line in zip(regions["sources"], regions["recall"], strict=True)
    ]
    heads, remark = ["index from", *names], _regions_remark(regions.get("claims", []))
    return ReportTable("Recall of an index from one region on others", heads, rows, remark)


def _regions_remark(claims: list[dict[str, Any]]) -> str:
    """Whether the paper's figure 12 is found again, claim by claim."""
    if not claims:
        return ""
    told = [
        f"that {one['claim']} {'is' if one['holds'] else 'is not'} so ({one['here']:.3f} against "
        f"{one['beside']:.3f}, a ratio of {one['here'] / max(one['beside'], 1e-9):.2f}, wanted "
        f"{one['wanted']})"
        for one in claims
    ]
    missed = sum(not one["holds"] for one in claims)
    verdict = "reproduces" if not missed else "does not reproduce"
    if 0 < missed < len(claims):
        verdict = "reproduces in part"
    return f"Figure 12 of MMInference {verdict} on this model: {'; '.join(told)}."


def _needles(grids: list[dict[str, Any]]) -> ReportTable:
    depths = grids[0]["depths"]
    rows = []
    for grid in grids:
        for length, right, asked in zip(grid["lengths"], grid["right"], grid["asked"], strict=True):
            cells = [f"{r}/{n}" for r, n in zip(right, asked, strict=True)]
            rows.append([grid["name"], f"{length}", *cells, f"{sum(right) / sum(asked):.0%}"])
    heads = ["arm", "frames", *(f"depth {depth:g}" for depth in depths), "all"]
    return ReportTable(f"{grids[0]['kind'].upper()}: right answers", heads, rows)


def _duels(duels: list[dict[str, Any]]) -> ReportTable:
    rows = [
        [
            one["states"],
            f"{one['our_share']:.1%}",
            f"{one['ours']:.4f}",
            f"{one['their_share']:.1%}",
            f"{one['theirs']:.4f}",
            one["rival"],
            cell(one.get("rival_far"), "{}"),
            cell(one.get("queries"), "{}"),
        ]
        for one in duels
    ]
    heads = [
        "states", "FLOPs, ours", "error, ours", "FLOPs, rival", "error, rival", "rival",
        "its far lines", "queries",
    ]  # fmt: skip
    remark = (
        "The rival is the vertical-slash of least error among those that cost as much, and has "
        "slash lines beyond the nearest 64 in any case. *queries*: on which errors were measured, "
        "of all heads; none of them chose a pattern, its lines or the rival."
    )
    return ReportTable("Output error at equal FLOPs", heads, rows, remark)


def _found(found: dict[str, Any]) -> ReportTable:
    noises = list(found["noise"])
    rows = [
        [kind, *(f"{rates[str(noise)]:.0%}" for noise in noises)]
        for kind, rates in found["rates"].items()
    ]
    remark = (
        f"{found['heads']} heads a kind and noise, {found['tokens']} tokens; noise is the "
        "standard deviation of scores in nats where lines are 10 high."
    )
    heads = ["planted", *(f"noise {noise:g}" for noise in noises)]
    return ReportTable("Planted heads that the search identifies", heads, rows, remark)


def markdown(result: dict[str, Any], source: str) -> str:
    """The page of one result."""
    shown = {name: FIGURES[name] for name in result.get("figures", [])}
    title = f"Prefill: {result['model']}"
    lines = [*head(result, source, title), *sections(tables(result)), *pictures(shown, source)]
    return "\n".join(lines) + "\n"


def _yes(met: bool) -> str:
    return "yes" if met else "no"
