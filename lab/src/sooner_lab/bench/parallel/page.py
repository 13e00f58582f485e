"""The tables of a study, for the terminal and for Markdown: the paper's 1, 2, 3, 6 and 7."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ..pages import ReportTable, cell, head, pictures, sections
from .breakdown import COLUMNS, breakdown
from .contenders import FORKED, OURS
from .summary import lossy_rows

Figures = dict[str, Any]
FIGURES = {
    "speedup": "Decoding speed over plain decoding, by method",
    "gantt": "Draft and target side by side, one real run",
    "kept": "Visual tokens that the draft keeps of each frame (figure 7a)",
    "alpha": "Speed-up and accepted run length by pruning ratio (figure 6)",
}
METHODS = (
    ("method", "{}"), ("accepted_run_length", "{:.2f}"), ("mean_acceptance_length", "{:.2f}"),
    ("acceptance_rate", "{:.2f}"), ("tokens_per_second", "{:.1f}"), ("decode_speedup", "{:.2f}×"),
    ("e2e_speedup", "{:.2f}×"), ("first_token_ratio", "{:.2f}×"), ("simulated_speedup", "{:.2f}×"),
    ("share_of_simulation", "{:.0%}"), ("over_speculative", "{:.2f}×"),
    ("over_speculative_auto", "{:.2f}×"), ("parity", "{}"),
)  # fmt: skip
METHOD_HEADS = [
    "method", "M", "tokens a step", "τ", "tokens/s", "decode", "e2e", "first token", "simulated",
    "of simulated", "over vanilla, window 5", "over vanilla, window chosen", "parity",
]  # fmt: skip


def tables(result: Figures) -> list[ReportTable]:
    """Every table that the result has figures for."""
    found = [_goals(result["goals"])] if result["goals"] else []
    exact = [arm for arm in result["arms"] if arm["mode"] == "exact"]
    if len(exact) > 1:
        found.append(_methods(exact))
    if any(arm["mode"] != "exact" for arm in result["arms"]):
        found.append(_lossy(lossy_rows(result["arms"])))
    if result["sweep"]:
        found += [_speed_ratios(result["sweep"]), _ratios(result["sweep"]), _criteria(result)]
    if len(exact) > 1:
        found.append(_breakdown(result))
    if result.get("timeline"):
        found.append(_overlap([run["phases"] for run in result["timeline"]]))
    return found


def _goals(goals: Sequence[Figures]) -> ReportTable:
    rows = [
        [one["goal"], one["wanted"], _reached(one), "yes" if one["met"] else "no"] for one in goals
    ]
    return ReportTable("Goals", ["figure", "wanted", "reached", "met"], rows)


def _reached(goal: Figures) -> str:
    told = f"{goal['reached']:.2f}"
    if "interval" not in goal:
        return told
    low, high = goal["interval"]
    return f"{told} ({low:.0f} to {high:.0f})"


def _methods(arms: Sequence[Figures]) -> ReportTable:
    rows = [[cell(arm.get(key), form) for key, form in METHODS] for arm in arms]
    remark = (
        "M: tokens between two rejections, the target's own included; *tokens a step*: accepted "
        "drafts and one; τ: accepted share of the drafts that were verified; *first token*: time "
        "to it over plain decoding's; *simulated*: what the simulator of "
        "`sooner_lab.theory` makes of the "
        "measured step times and agreement; *over vanilla*: decoding speed over `speculative`'s "
        "and over `speculative-auto`'s. `parallel` has a draft process that stands for all runs "
        "(`StandingDraft`), `parallel-forked` one that is forked for each run. Parity is against "
        "HF's own incremental decoding."
    )
    return ReportTable("Lossless methods (table 1)", METHOD_HEADS, rows, remark)


def _lossy(arms: Sequence[Figures]) -> ReportTable:
    keys = (
        ("method", "{}"), ("mode", "{}"), ("retention", "{:.0%}"),
        ("prefill_retention", "{:.0%}"), ("acceptance_ratio", "{:.1%}"),
        ("decode_speedup", "{:.2f}×"), ("tokens", "{}"), ("pruner", "`{}`"),
    )  # fmt: skip
    rows = [[cell(arm.get(key), form) for key, form in keys] for arm in arms]
    remark = (
        "𝒜: share of the tokens that the full target, reading the same prefix, would say too "
        "(`sooner_lab.bench.fidelity`). *Retention*: mean share of the visual tokens, over the "
        "layers, that generated tokens attend to, the same for all; *in prefill*: that the prefill "
        "computes. DyCoke's first stage keeps a quarter at least; the rest it lays aside while "
        "tokens are generated. Stages whose own layers leave no room for that are brought forward."
    )
    heads = ["method", "mode", "retention", "in prefill", "𝒜", "decode", "tokens", "as run"]
    return ReportTable("Lossy pruning of the target (table 2)", heads, rows, remark)


def _speed_ratios(points: Sequence[Figures]) -> ReportTable:
    """Tables 3 and 5: T_p, and T_q by ratio, of the sweep's first criterion."""
    line = _line(points, points[0]["criterion"])
    rows = [
        [
            f"{one['alpha']:g}",
            cell(_milliseconds(one, "target_step_seconds"), "{:.2f}"),
            cell(_milliseconds(one, "draft_step_seconds"), "{:.2f}"),
            cell(one.get("speed_ratio"), "{:.1f}"),
        ]
        for one in line
    ]
    remark = "T_p: a plain step of the target; T_q: a draft step beside the target; milliseconds."
    heads = ["α", "T_p, ms", "T_q, ms", "c = T_p / T_q"]
    return ReportTable("Speed ratio by pruning ratio (tables 3 and 5)", heads, rows, remark)


def _ratios(points: Sequence[Figures]) -> ReportTable:
    """Table 7: what higher ratios cost."""
    line = _line(points, points[0]["criterion"])
    keys = (
        ("draft_run_length", "M", "{:.2f}"), ("draft_agreement", "draft agrees", "{:.1%}"),
        ("repacked_draft_run_length", "M, positions packed", "{:.2f}"),
        ("accepted_run_length", "M of the run", "{:.2f}"), ("acceptance_rate", "τ", "{:.2f}"),
        ("decode_speedup", "speed-up", "{:.2f}×"), ("simulated_speedup", "simulated", "{:.2f}×"),
        ("parity", "parity", "{}"),
    )  # fmt: skip
    rows = [[head, *(cell(one.get(key), form) for one in line)] for key, head, form in keys]
    rows.insert(1, ["M, % of the unpruned draft's", *map(_length_share, line)])
    heads = ["α", *(f"{one['alpha']:g}" for one in line)]
    remark = f"Kept by `{points[0]['criterion']}`. {_judged(points)}"
    return ReportTable("By pruning ratio (table 7)", heads, rows, remark)


def _judged(points: Sequence[Figures]) -> str:
    clips = min((one["read_clips"] for one in points if "read_clips" in one), default=None)
    of = "" if clips is None else f", on {clips} clips"
    return (
        "M: tokens between two rejections if each token of the text is held against what the "
        f"draft, having read the text so far, would say{of}; no clock or window decides it. *M of "
        "the run*: of the verifications of timed runs. *Positions packed*: kept tokens numbered "
        "anew, instead of keeping their places, which is what runs."
    )


def _length_share(point: Figures) -> str:
    share = point.get("run_length_share", {"value": None})
    return "–" if not point["alpha"] else cell(share["value"], "{:.1%}")


def _criteria(result: Figures) -> ReportTable:
    """Figures 6 and 7b as numbers: M and speed-up of every criterion by ratio."""
    points = result["sweep"]
    ratios = sorted({one["alpha"] for one in points})
    names = list(dict.fromkeys(one["criterion"] for one in points))
    rows = []
    for name in names:
        line = {one["alpha"]: one for one in _line(points, name)}
        cells = [
            f"{cell(line[alpha].get('draft_run_length'), '{:.2f}')} / "
            f"{cell(line[alpha].get('decode_speedup'), '{:.2f}×')}"
            if alpha in line
            else "–"
            for alpha in ratios
        ]
        rows.append([name, *cells])
    heads = ["criterion", *(f"α {alpha:g}" for alpha in ratios)]
    remark = (
        "M / speed-up; `uv-prune` is the paper's, by frame it is ours; `similarity` is UV-Prune "
        f"without variation. {_judged(points)}"
    )
    return ReportTable("Pruning criteria (figures 6 and 7)", heads, rows, remark)


def _line(points: Sequence[Figures], criterion: str) -> list[Figures]:
    """The points of one criterion by ratio; without pruning all are the same."""
    return [one for one in points if one["criterion"] == criterion or one["alpha"] == 0]


def _breakdown(result: Figures) -> ReportTable:
    rows = [[name, *cells] for name, cells in breakdown(result)]
    remark = (
        "Seconds a clip. The draft of `parallel` prefills and drafts beside the target, so its "
        "time is no part of the total; *waiting and bookkeeping* is what the target spends between "
        "its forwards. Memory: of the process and its worker."
    )
    return ReportTable("Latency and memory (table 6)", ["operation", *COLUMNS], rows, remark)


def _overlap(runs: Sequence[Figures]) -> ReportTable:
    """Means over clips of what both sides did in watched runs."""
    keys = (
        ("launch", "before both"), ("vision", "target: vision"), ("prefill", "target: prefill"),
        ("verify", "target: verifying"),
        ("waiting", "target: waiting for drafts"), ("rest", "target: the rest"),
        ("draft_vision", "draft: vision"), ("draft_prefill", "draft: prefill"),
        ("draft_hidden", "of both hidden under the target's"),
        ("draft_exposed", "of both exposed"), ("draft_seconds", "draft: drafting"),
    )  # fmt: skip
    rows = [
        [name, f"{1e3 * fmean(run[key] for run in runs):.1f}"]
        for key, name in keys
        if all(key in run for run in runs)  # older results know fewer phases
    ]
    first = sum(run["first_token"] for run in runs)
    rows.append(
        [
            "exposed vision and prefill of the draft, share of the time to the first token",
            _share(runs, "draft_exposed", first),
        ]
    )
    useful = [run["draft_useful"] for run in runs if run["draft_useful"] is not None]
    rows.append(["draft tokens that came to stand", f"{fmean(useful):.0%}" if useful else "–"])
    remark = (
        "One run a clip with both models watched by hooks; milliseconds. *Before both*: from the "
        "call to the target's first work, the worker's start included: in these runs it is forked "
        "anew, which the timed ones are spared by a `StandingDraft`. What ranking takes is among "
        "the goals, of the timed runs: hooks add to it here."
    )
    return ReportTable("What overlaps", ["phase", "ms"], rows, remark)


def _share(runs: Sequence[Figures], key: str, whole: float) -> str:
    return f"{sum(run[key] for run in runs) / whole:.2%}" if whole else "–"


def _milliseconds(one: Figures, key: str) -> float | None:
    seconds = one.get(key)
    return None if seconds is None else 1e3 * seconds


def markdown(result: Figures, source: str) -> str:
    """The page of one result; `source` names the JSON it came from."""
    prompt = result["prompt_tokens"]
    lines = [
        *head(result, source, f"ParallelVLM: {result['dataset'] or result['model']}"),
        "",
        f"{result['model']}: {result['clips']} clips, {result['repeats']} run(s) of each arm on "
        f"each; {prompt['all']} prompt tokens, {prompt['visual']} of them visual.",
        *sentences(result),
    ]
    if not result["complete"]:
        lines += ["", "**Interrupted**: the same command goes on with it."]
    shown = {name: caption for name, caption in FIGURES.items() if has_figure(result, name)}
    return "\n".join([*lines, *sections(tables(result)), *pictures(shown, source)]) + "\n"


def sentences(result: Figures) -> list[str]:
    """What table 1 says of `parallel`, in words; nothing where an arm was not measured."""
    arms = {arm["method"]: arm for arm in result["arms"]}
    ours, forked = arms.get(OURS, {}), arms.get(FORKED, {})
    keys = ("decode_speedup", "over_speculative", "over_speculative_auto", "first_token_ratio")
    if any(ours.get(key) is None for key in keys):
        return []
    plain, fixed, chosen, first = (f"{ours[key]:.2f}" for key in keys)
    told = (
        f"`parallel` decodes {plain} times as fast as plain decoding, {fixed} times as fast as "
        f"vanilla speculation with a window of 5, and {chosen} times as fast as vanilla "
        f"speculation that chooses its window. The first token takes {first} times plain "
        "decoding's time with a draft process that stands"
    )
    late = forked.get("first_token_ratio")
    if late is not None:
        told += f", {late:.2f} times with one that is forked for the run"
    return ["", f"{told}."]


def has_figure(result: Figures, name: str) -> bool:
    """Whether the result has the data of a figure of `FIGURES`."""
    data = {
        "speedup": len(result["arms"]) > 1,
        "gantt": any("target" in run for run in result.get("timeline", [])),
        "kept": any(one.get("kept_by_frame") for one in result["sweep"]),
        "alpha": bool(result["sweep"]),
    }
    return data[name]
