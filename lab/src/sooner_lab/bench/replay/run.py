"""The whole of `sooner bench replay`: point by point, every arm beside its theory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sooner.methods.threads import Threads
from sooner.parity import compare
from sooner.provenance import provenance

from ..run import ArmSamples, measure, quotient, row
from .arms import Decoders, PointArms
from .expected import Theory, static_tree
from .goals import goals, place
from .realized import realized
from .script import PATTERNS, Process, Script
from .settings import ReplaySettings
from .steps import PLAIN, ForwardTimes, forward_times, pooled
from .trees import RankedTree

Figures = dict[str, Any]

MORE_ROWS = 3.0
"""How much longer a point is thought to take than the longest before, if it has more rows."""


def run(settings: ReplaySettings, progress: Callable[[str], None] = print) -> Figures:
    """Measure every point.

    Returns:
        `points`, each with `rows`, `pattern`, `acceptance`, its own `steps` and its `arms`; `steps`
        by rows, of all points, which theory is made of; `left_out`, the points that the budget had
        no room for; `goals`; `model` (always `replay`: no figure is of a trained model),
        `settings`, `provenance`.

    Raises:
        SoonerError: settings that make no script.
    """
    settings.check()
    processes = int("parallel" in settings.methods)
    threads = Threads.plan(settings.threads, is_miniature=True, processes=processes).apply()
    progress("building decoders")
    decoders = Decoders(settings)
    measured, left_out = _measure(decoders, settings, progress)
    steps = {
        rows: pooled([point.times for point in measured if point.rows == rows])
        for rows in settings.rows
        if any(point.rows == rows for point in measured)
    }
    times = {
        rows: ForwardTimes.of(seconds, _level(measured, rows, seconds[PLAIN]))
        for rows, seconds in steps.items()
    }
    points = [_figures_of(point, times, settings) for point in measured]
    result: Figures = {
        "bench": "replay",
        "model": "replay",
        "settings": asdict(settings),
        "steps": [
            {"rows": rows, "seconds": seconds, "head_level": times[rows].head_level}
            for rows, seconds in steps.items()
        ],
        "points": points,
        "left_out": left_out,
        "goals": goals(points),
    }
    result["provenance"] = provenance(settings.device, settings.dtype, settings.seed, threads.draft)
    return result


@dataclass(frozen=True)
class MeasuredPoint:
    """What was measured of one point.

    Attributes:
        rows, pattern, acceptance: which one it is.
        script: where drafts were right.
        times: of forwards, see `forward_times`.
        arms: samples and parity of each.
    """

    rows: int
    pattern: str
    acceptance: float
    script: Script
    times: dict[str, dict[str, Any]]
    arms: list[ArmSamples]

    @property
    def about(self) -> Figures:
        return {"rows": self.rows, "pattern": self.pattern, "acceptance": self.acceptance}


def _measure(
    decoders: Decoders, settings: ReplaySettings, progress: Callable[[str], None]
) -> tuple[list[MeasuredPoint], list[str]]:
    """Every point that the budget has room for, and the places of the others."""
    points, start = settings.points(), time.monotonic()
    measured: list[MeasuredPoint] = []
    left_out: list[str] = []
    took: dict[int, float] = {}  # seconds of the last point by rows
    for number, (rows, pattern, acceptance) in enumerate(points, start=1):
        where = place({"rows": rows, "pattern": pattern, "acceptance": acceptance})
        began = time.monotonic()
        needed = took.get(rows, MORE_ROWS * max(took.values(), default=0.0))
        if settings.budget is not None and began - start + needed > settings.budget and measured:
            left_out.append(where)
            continue

        def tell(line: str, label: str = f"point {number}/{len(points)} ({where})") -> None:
            progress(f"{label}: {line}")

        process = Process(acceptance, PATTERNS[pattern], settings.sibling)
        script = Script.draw(process, settings.vocab, settings.new_tokens, settings.seed)
        tell("forwards")
        times = _times(decoders, script, settings, rows)
        known: dict[int, list[dict[str, Any]]] = {rows: [times]}
        for point in measured:
            known.setdefault(point.rows, []).append(point.times)
        so_far = {count: ForwardTimes.of(pooled(each)) for count, each in known.items()}
        theory = Theory(script, so_far, settings, rows)
        arms = _arms(decoders, script, settings, theory, tell)
        measured.append(MeasuredPoint(rows, pattern, acceptance, script, times, arms))
        took[rows] = time.monotonic() - began
    return measured, left_out


def _arms(
    decoders: Decoders,
    script: Script,
    settings: ReplaySettings,
    theory: Theory,
    progress: Callable[[str], None],
) -> list[ArmSamples]:
    """Every arm timed, its texts held against the script."""
    best = theory.best_chain(settings.max_draft_tokens, may_rest=False).draft_tokens
    made = PointArms(decoders, script, settings, theory.rows, best or 1)
    with made.arms() as arms:
        measured = measure(arms, settings.inputs(theory.rows), settings.repeats, progress)
    for arm in measured:
        for index, runs in enumerate(arm.samples):
            texts = made.texts(index)
            arm.parity += [
                compare(text, output_ids)
                for sample in runs
                for text, output_ids in zip(texts, sample.tokens, strict=True)
            ]
    return measured


def _times(
    decoders: Decoders, script: Script, settings: ReplaySettings, rows: int
) -> dict[str, dict[str, Any]]:
    """In the middle of the text, of the adapters that decode it."""
    made = PointArms(decoders, script, settings, rows, 1)
    trees = {"sd-tree": static_tree(), "eagle": RankedTree.dynamic(script.process, settings)}
    return forward_times(
        decoders.target,
        made.draft,
        made.prompts(0),
        settings.new_tokens // 2,
        trees,
        settings.step_repeats,
    )


def _level(measured: Sequence[MeasuredPoint], rows: int, plain: float) -> float | None:
    """Seconds of a level of `eagle`'s head as its runs had it, pooled as forwards are.

    Args:
        plain: seconds of a plain step.
    """
    over = []
    for point in measured:
        arms = {arm.arm.name: arm for arm in point.arms}
        if point.rows == rows and "eagle" in arms:
            levels = [seconds for each in arms["eagle"].stats for seconds in each.draft_seconds]
            steps = [time for each in arms["plain"].stats for time in each.verify_seconds[1]]
            over.append(median(levels) / median(steps))
    return median(over) * plain if over else None


def _figures_of(
    point: MeasuredPoint, times: Mapping[int, ForwardTimes], settings: ReplaySettings
) -> Figures:
    theory = Theory(point.script, times, settings, point.rows)
    plain = next(arm for arm in point.arms if arm.arm.name == "plain")
    return {
        **point.about,
        "steps": point.times,
        "arms": [_figures(arm, plain, theory, settings.seed) for arm in point.arms],
    }


def _figures(arm: ArmSamples, plain: ArmSamples, theory: Theory, seed: int) -> Figures:
    """One arm against plain decoding, and both against theory.

    `expected_speedup` is theory's at the script's acceptance, `of_theory` the measured share of it;
    `speedup_of_counts` takes the rounds that came out instead.
    """
    figures = row(arm, plain)
    result: Figures = {
        name: figures[name]
        for name in (
            "method", "mode", "parity", "tokens", "tokens_per_second", "decode_speedup",
            "e2e_speedup", "mean_acceptance_length", "accepted_run_length", "nfe",
            "overhead_share", "notes",
        )
        if name in figures
    }  # fmt: skip
    result["speedup_of_counts"] = figures.get("theory_speedup")
    result["divergences"] = figures["divergences"][:4]
    once = [runs[0].stats for runs in arm.samples if runs[0].stats is not None]
    result |= realized(arm.arm.name, once, theory.process, seed)
    if result.get("as_scripted") is False:
        result.pop("decode_speedup", None)
    if "decode_speedup" in result:
        result["interval"] = _interval(arm, plain, seed)
    expected = theory.of(result["method"])
    if expected is not None:
        result |= expected.as_dict()
        if "decode_speedup" in result:
            result["of_theory"] = result["decode_speedup"] / expected.speedup
    return result


def _interval(arm: ArmSamples, plain: ArmSamples, seed: int) -> Sequence[float] | None:
    """95 % interval of the speed-up over plain decoding's run of the same turn."""
    pairs = [
        (sample, base)
        for runs, base_runs in zip(arm.samples, plain.samples, strict=True)
        for sample, base in zip(runs, base_runs, strict=True)
    ]
    rate = (
        [sample.decode_tokens for sample, _ in pairs],
        [sample.decode_seconds for sample, _ in pairs],
    )
    base = (
        [sample.decode_tokens for _, sample in pairs],
        [sample.decode_seconds for _, sample in pairs],
    )
    interval: Sequence[float] | None = quotient(rate, base, seed)["interval"]
    return interval
