"""Figures from runs: one row an arm, one a point of the sweep, one a phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from sooner.engine.stats.run import APPROXIMATE

from ..prediction import predicted_speedup, step_curve
from ..run import Arm, ArmSamples, TimedRun, row
from .book import Book
from .contenders import OURS, PLAIN, ParallelContender, contenders, sweep
from .records import Record, to_parity, to_sample
from .settings import ParallelSettings

Figures = dict[str, Any]
VANILLA = {"over_speculative": "speculative", "over_speculative_auto": "speculative-auto"}
"""Vanilla speculative decoding, with the paper's window of 5 and with one that it chooses."""
PRUNER_KEYS = ("retention", "prefill_retention", "pruner")
"""What a record tells of a lossy arm's pruner, see `CaptionBench.pruner_figures`."""


def measured(book: Book, arm: ParallelContender) -> ArmSamples | None:
    """The runs of an arm as the protocol takes them; `None` before its first."""
    records = book.of(arm.name)
    if not records:
        return None
    clips = sorted({record["clip"] for record in records})
    samples = [[to_sample(each) for each in records if each["clip"] == clip] for clip in clips]
    parity = [to_parity(each) for each in records]
    return ArmSamples(Arm(arm.name, _never, arm.mode), samples, parity)


def _never(index: int) -> TimedRun:
    raise AssertionError("these runs are over")


def summarise(book: Book, settings: ParallelSettings) -> Figures:
    """`arms` and `sweep` from the runs so far; arms are compared on the clips they all have."""
    arms = contenders(settings)
    rows = {arm.name: _row(book, arm, settings) for arm in arms if book.of(arm.name)}
    for arm in rows.values():
        arm |= over_vanilla(arm, rows)
    swept = sweep(settings) if "sweep" in settings.parts else []
    return {
        "arms": [rows[arm.name] for arm in arms if arm.name in rows and arm.part != "sweep"],
        "sweep": [
            {**_point(rows[arm.name]), "alpha": arm.alpha, "criterion": arm.criterion}
            for arm in swept
            if arm.name in rows
        ],
    }


def over_vanilla(arm: Figures, rows: Mapping[str, Figures]) -> Figures:
    """Decoding speed of an arm over either way of vanilla speculative decoding."""
    speedup = arm.get("decode_speedup")
    vanilla = {key: rows.get(name, {}).get("decode_speedup") for key, name in VANILLA.items()}
    return {key: speedup / speed for key, speed in vanilla.items() if speedup and speed}


def _on_same_clips(book: Book, arm: ParallelContender) -> ArmSamples:
    """Plain decoding of the clips that an arm has run on."""
    clips = {record["clip"] for record in book.of(arm.name)}
    some = Book(None, {})
    for record in book.of(PLAIN):
        if record["clip"] in clips:
            some.add(record)
    samples = measured(some, ParallelContender(PLAIN, "methods"))
    assert samples is not None, "plain decoding runs first"
    return samples


def _row(book: Book, arm: ParallelContender, settings: ParallelSettings) -> Figures:
    runs, plain = measured(book, arm), _on_same_clips(book, arm)
    assert runs is not None, "arms without runs have no row"
    figures = row(runs, plain)
    records = book.of(arm.name)
    if not figures.get("acceptance_rate"):
        figures["accepted_run_length"] = None  # nothing was drafted
    figures |= {
        "alpha": arm.alpha,
        "criterion": arm.criterion if arm.alpha is not None else None,
        "verdicts": sorted({record["parity"]["verdict"] for record in records}),
        "first_token_ratio": first_token_ratio(book, arm.name),
        "draft_step_seconds": _draft_step(records),
        "target_step_seconds": step_curve(plain.stats)(1),
    }
    ratios = [each["acceptance_ratio"] for each in records if "acceptance_ratio" in each]
    if ratios:
        figures["acceptance_ratio"] = sum(ratios) / len(ratios)
    ranking = sum(each["stats"]["rank_seconds"] for each in records if each["stats"])
    if ranking and arm.alpha is not None:
        prefill = sum(each["stats"]["seconds"]["prefill"] for each in records)
        figures["ranking_share"] = ranking / prefill
    figures |= {key: records[0][key] for key in PRUNER_KEYS if key in records[0]}
    predicted = _simulated(arm, runs, plain, settings.num_draft_tokens)
    if predicted is not None:
        figures["simulated_speedup"] = predicted
        figures["share_of_simulation"] = figures["decode_speedup"] / predicted
    return figures


def _simulated(
    arm: ParallelContender, runs: ArmSamples, plain: ArmSamples, num_draft_tokens: int
) -> float | None:
    """What step times and agreement allow an arm whose drafts are chains of one length or free."""
    if runs.is_red or (arm.alpha is None and arm.name != "speculative"):
        return None
    return predicted_speedup(
        runs.stats, plain.stats, None if arm.alpha is not None else num_draft_tokens
    )


def _draft_step(records: Sequence[Record]) -> float | None:
    """T_q: median over runs of the mean seconds of a draft forward."""
    each = [
        record["stats"]["draft_forward_seconds"] / record["stats"]["draft_forwards"]
        for record in records
        if record["stats"] and record["stats"]["draft_forwards"]
    ]
    return median(each) if each else None


def first_token_ratio(book: Book, arm: str) -> float | None:
    """Median over runs of the time to the first token over plain decoding's of the same round."""
    pairs = [
        (record["first_token_seconds"], book.records[PLAIN, record["clip"], record["repeat"]])
        for record in book.of(arm)
        if record.get("first_token_seconds") and book.has(PLAIN, record["clip"], record["repeat"])
    ]
    ratios = [run / plain["first_token_seconds"] for run, plain in pairs]
    return median(ratios) if ratios else None


def _point(figures: Figures) -> Figures:
    """What the sweep tells of an arm."""
    names = (
        "method", "accepted_run_length", "mean_acceptance_length", "acceptance_rate",
        "draft_step_seconds", "target_step_seconds", "decode_speedup", "simulated_speedup",
        "share_of_simulation", "parity", "first_token_ratio", "ranking_share",
    )  # fmt: skip
    point = {name: figures[name] for name in names if name in figures}
    draft = point.get("draft_step_seconds")
    if draft:
        point["speed_ratio"] = point["target_step_seconds"] / draft
    return point


def lossy_rows(arms: Sequence[Figures]) -> list[Figures]:
    """The rows of table 2: approximate arms, and ours beside them."""
    return [arm for arm in arms if arm["mode"] == APPROXIMATE or arm["method"] == OURS]
