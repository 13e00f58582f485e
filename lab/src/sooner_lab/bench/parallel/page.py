"""The page of `sooner bench parallel`: ParallelVLM's tables 1, 2, 3, 6 and 7."""

from __future__ import annotations

from typing import Any

from ..declared import Data, times
from ..plots import Figure, Panel
from ..render import Columns, Page, ReportTable, Table, cell, pivot
from .run import OURS, lossy_rows

METHODS: Columns = (
    ("method", "method", "{}"), ("accepted_run_length", "M", "{:.2f}"),
    ("mean_acceptance_length", "tokens a step", "{:.2f}"), ("acceptance_rate", "τ", "{:.2f}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"), ("decode_speedup", "decode", "{:.2f}×"),
    ("e2e_speedup", "e2e", "{:.2f}×"), ("first_token_ratio", "first token", "{:.2f}×"),
    ("simulated_speedup", "simulated", "{:.2f}×"),
    ("share_of_simulation", "of simulated", "{:.0%}"),
    ("over_speculative", "over vanilla, window 5", "{:.2f}×"),
    ("over_speculative_auto", "over vanilla, window chosen", "{:.2f}×"), ("parity", "parity", "{}"),
)  # fmt: skip
LOSSY: Columns = (
    ("method", "method", "{}"), ("mode", "mode", "{}"), ("retention", "retention", "{:.0%}"),
    ("prefill_retention", "in prefill", "{:.0%}"), ("acceptance_ratio", "𝒜", "{:.1%}"),
    ("decode_speedup", "decode", "{:.2f}×"), ("tokens", "tokens", "{}"),
    ("pruner", "as run", "`{}`"),
)  # fmt: skip
RATIOS: Columns = (
    ("alpha", "α", "{:g}"), (times("target_step_seconds", 1e3), "T_p, ms", "{:.2f}"),
    (times("draft_step_seconds", 1e3), "T_q, ms", "{:.2f}"),
    ("speed_ratio", "c = T_p / T_q", "{:.1f}"), ("draft_run_length", "M, read", "{:.2f}"),
    ("draft_agreement", "draft agrees", "{:.1%}"),
    ("accepted_run_length", "M of the run", "{:.2f}"),
    ("acceptance_rate", "τ", "{:.2f}"), ("decode_speedup", "speed-up", "{:.2f}×"),
    ("simulated_speedup", "simulated", "{:.2f}×"), ("parity", "parity", "{}"),
)  # fmt: skip


def _exact(result: Data) -> list[Data]:
    rows = [arm for arm in result["arms"] if arm["mode"] == "exact"]
    return rows if len(rows) > 1 else []


def _lossy(result: Data) -> list[Data]:
    is_there = any(arm["mode"] != "exact" for arm in result["arms"])
    return lossy_rows(result["arms"]) if is_there else []


def _line(result: Data) -> list[Data]:
    """Points of the sweep's first criterion by ratio; without pruning all criteria are one."""
    points = result["sweep"]
    return [
        point
        for point in points
        if point["criterion"] == points[0]["criterion"] or not point["alpha"]
    ]


def _criteria(result: Data) -> list[ReportTable]:
    """M and speed-up of every criterion by ratio."""
    points = result["sweep"]
    if not points:
        return []
    names = dict.fromkeys(point["criterion"] for point in points)
    cells = [
        {**point, "criterion": name}
        for name in names
        for point in points
        if point["criterion"] == name or not point["alpha"]
    ]
    cells.sort(key=lambda point: (list(names).index(point["criterion"]), point["alpha"]))
    heads, rows = pivot(
        cells,
        "criterion",
        "alpha",
        lambda point: (
            f"{cell(_run_length(point), '{:.2f}')} / {cell(point.get('decode_speedup'), '{:.2f}×')}"
        ),
    )
    remark = (
        "M / speed-up by α; `uv-prune` is the paper's, by frame it is ours; `similarity` is "
        "UV-Prune without variation. M is that of drafts that read the text where the result has "
        "it, else of the timed runs."
    )
    return [ReportTable("Pruning criteria (figures 6 and 7)", heads, rows, remark)]


def _run_length(point: Data) -> float | None:
    length = point.get("draft_run_length", point.get("accepted_run_length"))
    return None if length is None else float(length)


def _phases(result: Data) -> list[ReportTable]:
    """Table 6: seconds of each phase by arm."""
    arms = {arm["method"]: arm for arm in result["arms"] if arm.get("seconds")}
    names = [name for name in ("plain", "speculative", "speculative-auto", OURS) if name in arms]
    if len(names) < 2:
        return []
    rows = [
        [name.replace("_", " "), *(f"{arms[each]['seconds'][name]:.3f}" for each in names)]
        for name in arms[names[0]]["seconds"]
    ]
    rows.append(["total", *(f"{sum(arms[each]['seconds'].values()):.3f}" for each in names)])
    remark = (
        "Seconds a clip. The draft of `parallel` prefills and drafts beside the target, so its "
        "time is no part of the total; its *draft* is what the target spends between its forwards."
    )
    return [ReportTable("Latency (table 6)", ["operation", *names], rows, remark)]


def _about(result: Data) -> list[str]:
    prompt = result["prompt_tokens"]
    return [
        "",
        f"{result['model']}: {result['clips']} clips, {result['repeats']} run(s) of each arm on "
        f"each; {prompt['all']} prompt tokens, {prompt['visual']} of them visual.",
    ]


def _fast(result: Data) -> list[Data]:
    rows = [arm for arm in result["arms"] if arm.get("decode_speedup")]
    return sorted(rows, key=lambda arm: arm["decode_speedup"]) if len(rows) > 1 else []


def _points(result: Data) -> list[Any]:
    return [{**point, "run_length": _run_length(point)} for point in result["sweep"]]


PAGE = Page(
    lambda result: f"ParallelVLM: {result['dataset'] or result['model']}",
    (
        Table(
            "Lossless methods (table 1)",
            _exact,
            METHODS,
            "M: tokens between two rejections, the target's own included; *tokens a step*: "
            "accepted drafts and one; τ: accepted share of the drafts that were verified; *first "
            "token*: time to it over plain decoding's; *simulated*: what the simulator of "
            "`sooner_lab.theory` makes of the measured step times and agreement; *over vanilla*: "
            "decoding speed over `speculative`'s and over `speculative-auto`'s. `parallel` has a "
            "draft process that stands for all runs (`StandingDraft`). Parity is against HF's own "
            "incremental decoding.",
        ),
        Table(
            "Lossy pruning of the target (table 2)",
            _lossy,
            LOSSY,
            "𝒜: share of the tokens that the full target, reading the same prefix, would say too "
            "(`sooner_lab.bench.fidelity`). *Retention*: mean share of the visual tokens, over the "
            "layers, that generated tokens attend to, the same for all; *in prefill*: that the "
            "prefill computes. Stages whose own layers leave no room for that are brought forward.",
        ),
        Table(
            "By pruning ratio (tables 3, 5 and 7)",
            _line,
            RATIOS,
            "Of the first criterion. T_p: a plain step of the target; T_q: a draft step beside it. "
            "*M, read*: tokens between two rejections if each token of the text is held against "
            "what the draft, having read the text so far, would say; *M of the run*: of the "
            "verifications of timed runs.",
        ),
        _criteria,
        _phases,
    ),
    (
        Figure(
            "speedup",
            "Decoding speed over plain decoding, by method",
            (
                Panel(
                    _fast, "method", ("decode_speedup", "simulated_speedup"), "",
                    "times plain decoding", kind="bar", level=1.0,
                    names={"decode_speedup": "measured", "simulated_speedup": "simulated"},
                ),
            ),
            size=(8.5, 4.2),
        ),
        Figure("gantt", "Draft and target side by side, one real run", needs="timeline"),
        Figure(
            "kept",
            "Visual tokens that the draft keeps of each frame (figure 7a)",
            needs=lambda result: any(point.get("kept_by_frame") for point in result["sweep"]),
        ),
        Figure(
            "alpha",
            "Speed-up and accepted run length by pruning ratio (figure 6)",
            (
                Panel(
                    _points, "alpha", "decode_speedup", "pruned share of the visual tokens, α",
                    "speed-up of decoding, ×", by="criterion",
                ),
                Panel(
                    _points, "alpha", "run_length", "pruned share of the visual tokens, α",
                    "M, tokens", by="criterion",
                ),
            ),
        ),
    ),
    intro=_about,
    retired={"9362df8": ("timeline", "memory")},
)  # fmt: skip
