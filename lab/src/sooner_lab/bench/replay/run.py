"""The whole of `sooner bench replay`: point by point, every arm beside its theory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sooner.engine.stats.run import Stats
from sooner.methods.threads import Threads
from sooner.parity import compare
from sooner.tasks.act.rollout import wilson

from ..goals import worst
from ..run import RESAMPLES, ArmSamples, Data, Keep, Recorder, measure, quotient, row
from .arms import Decoders, PointArms
from .expected import Theory
from .page import fastest
from .script import Process, Script
from .settings import NEVER_SLOWER, OF_THEORY, PARALLEL_FROM, PATTERNS, THEORY_FROM, ReplaySettings
from .steps import ForwardTimes, forward_times, pooled

AUTO = "speculative-auto"

CHAINS = ("speculative", "speculative-best", "speculative-auto", "prompt-lookup", "parallel")
"""Arms of which every judged draft token is right by the script's chance, whatever the round."""

SURE = 0.999
"""Confidence of the interval that the script's acceptance must lie in."""

MORE_ROWS = 3.0
"""How much longer a point is thought to take than the longest before, if it has more rows."""


def run(
    settings: ReplaySettings, progress: Callable[[str], None] = print, keep: Keep | None = None
) -> Data:
    """Measure every point.

    Args:
        keep: writes the result as far as it is, after each point.

    Returns:
        `points`, each with `rows`, `pattern`, `acceptance`, its own `steps` and its `arms`; `steps`
        by rows, of all points, which theory is made of; `left_out`, the points that the budget had
        no room for; `goals`; `model` (always `replay`: no figure is of a trained model),
        `settings`, `provenance`.
    """
    processes = int("parallel" in settings.methods)
    threads = Threads.plan(settings.threads, is_miniature=True, processes=processes).apply()
    progress("building decoders")
    decoders, start = Decoders(settings), time.monotonic()
    recorder = Recorder(
        "replay", settings, lambda result: goals(result["points"]), keep, model="replay"
    )
    recorder.origin(settings.device, settings.dtype, settings.seed)
    recorder.result["provenance"]["draft_threads"] = threads.draft
    points: list[Data] = []
    left_out: list[str] = []
    times: dict[int, ForwardTimes] = {}
    took: dict[int, float] = {}  # seconds of the last point by rows
    for number, (rows, pattern, acceptance) in enumerate(settings.points(), start=1):
        point: Data = {"rows": rows, "pattern": pattern, "acceptance": acceptance}
        began = time.monotonic()
        needed = took.get(rows, MORE_ROWS * max(took.values(), default=0.0))
        if settings.budget and began - start + needed > settings.budget and points:
            left_out.append(place(point))
            continue

        def tell(line: str, label: str = f"point {number} ({place(point)})") -> None:
            progress(f"{label}: {line}")

        tell("forwards")
        script = _script(point, settings)
        ids = PointArms(decoders, script, settings, rows, 1).prompts(0)
        middle, repeats = settings.new_tokens // 2, settings.step_repeats
        point["steps"] = forward_times(
            decoders.target, decoders.draft(script), ids, middle, repeats
        )
        points.append(point)
        seconds = {
            count: pooled([each["steps"] for each in points if each["rows"] == count])
            for count in dict.fromkeys(each["rows"] for each in points)
        }
        times = {count: ForwardTimes.of(each) for count, each in seconds.items()}
        measured = _arms(decoders, script, settings, Theory(script, times, settings, rows), tell)
        plain = next(arm for arm in measured if arm.arm.name == "plain")
        point["arms"] = [_figures(arm, plain, script.process, settings.seed) for arm in measured]
        _expect(point, times, settings)
        steps = [{"rows": count, "seconds": each} for count, each in seconds.items()]
        recorder.add(steps=steps, points=points, left_out=left_out)
        took[rows] = time.monotonic() - began
    for point in points:  # by the forwards of later points, too
        _expect(point, times, settings)
    return recorder.add(left_out=left_out)


def _script(point: Data, settings: ReplaySettings) -> Script:
    process = Process(point["acceptance"], PATTERNS[point["pattern"]], settings.sibling)
    return Script.draw(process, settings.vocab, settings.new_tokens, settings.seed)


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


def _figures(arm: ArmSamples, plain: ArmSamples, process: Process, seed: int) -> Data:
    """One arm against plain decoding; `speedup_of_counts` is what its forwards allow with the
    rounds that came out."""
    figures = row(arm, plain)
    result: Data = {
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
    result |= realized(arm.arm.name, once, process, seed)
    if result.get("as_scripted") is False:
        result.pop("decode_speedup", None)
    if "decode_speedup" in result:
        result["interval"] = _interval(arm, plain, seed)
    return result


def _expect(point: Data, times: Mapping[int, ForwardTimes], settings: ReplaySettings) -> None:
    """Add theory to a point's arms: `expected_speedup` at the script's acceptance, and `of_theory`,
    the measured share of it."""
    theory = Theory(_script(point, settings), times, settings, point["rows"])
    for arm in point["arms"]:
        expected = theory.of(arm["method"])
        if expected is not None:
            arm |= expected.as_dict()
            if "decode_speedup" in arm:
                arm["of_theory"] = arm["decode_speedup"] / expected.speedup


def _interval(arm: ArmSamples, plain: ArmSamples, seed: int) -> Sequence[float] | None:
    """95 % interval of the speed-up over plain decoding's run of the same turn."""
    pairs = [
        (sample, base)
        for runs, base_runs in zip(arm.samples, plain.samples, strict=True)
        for sample, base in zip(runs, base_runs, strict=True)
    ]
    rate, base = (
        ([run.decode_tokens for run in runs], [run.decode_seconds for run in runs])
        for runs in zip(*pairs, strict=True)
    )
    interval: Sequence[float] | None = quotient(rate, base, seed)["interval"]
    return interval


def realized(name: str, stats: Sequence[Stats], process: Process, seed: int) -> dict[str, Any]:
    """Counts the draft tokens that an arm judged, and those that it accepted.

    Behind a rejection nothing is judged. A tree judges levels: one is accepted where any of its
    nodes is. The bootstrap draws the steps of all rows.

    Args:
        name: of the arm.
        stats: of one run of each text; a text that is said again says nothing new.
        process: the script's.

    Returns:
        `scripted_acceptance`; of arms that drafted the `judged` draft tokens, `rejections`,
        `realized_acceptance` and its 95 % `acceptance_interval`; `as_scripted` of `CHAINS` whose
        tokens are independent: whether so many may have been accepted by the script's chance
        (Wilson's interval, 99.9 %). A method that knows the script ahead fails it.
    """
    figures: dict[str, Any] = {"scripted_acceptance": process.acceptance}
    steps: Counter[tuple[int, int]] = Counter()  # by accepted and rejected draft tokens
    for run_stats in stats:
        for accepted, times in run_stats.acceptance_histogram.items():
            rejected = run_stats.rejection_histogram[accepted]
            steps[accepted, 1] += rejected
            steps[accepted, 0] += times - rejected
    kinds = np.array(list(steps))  # [kinds, 2]
    counts = np.array(list(steps.values()))  # [kinds]
    accepted, rejections = (counts @ kinds).tolist() if len(kinds) else (0, 0)
    judged = accepted + rejections
    if not judged:
        return figures
    total = int(counts.sum())
    picks = np.random.default_rng(seed).multinomial(total, counts / total, RESAMPLES)
    drawn = picks @ kinds  # [resamples, 2]
    rates = drawn[:, 0] / np.maximum(drawn.sum(1), 1)
    figures |= {
        "judged": judged,
        "rejections": rejections,
        "realized_acceptance": accepted / judged,
        "acceptance_interval": [float(edge) for edge in np.percentile(rates, (2.5, 97.5))],
    }
    if name in CHAINS and not process.correlation:
        low, high = wilson(accepted, judged, SURE)
        figures["as_scripted"] = low <= process.acceptance <= high
    return figures


def goals(points: Sequence[Data]) -> list[Data]:
    """Return a row for each goal: the worst point that was reached, and those that missed it."""
    measured = [
        (point, {arm["method"]: arm for arm in point["arms"] if "decode_speedup" in arm})
        for point in points
    ]
    single = [(point, arms) for point, arms in measured if point["rows"] == 1]
    plain = [
        (place(point), arms[AUTO]["decode_speedup"]) for point, arms in measured if AUTO in arms
    ]
    theory = [
        (place(point), arms[AUTO]["of_theory"])
        for point, arms in single
        if AUTO in arms and point["pattern"] == "independent" and point["acceptance"] >= THEORY_FROM
    ]
    parallel = [
        (place(point), arms["parallel"]["decode_speedup"] / fastest(arms))
        for point, arms in single
        if "parallel" in arms and fastest(arms) and point["acceptance"] >= PARALLEL_FROM
    ]
    return [
        *worst(f"{AUTO} over plain, every acceptance and number of rows, ×", NEVER_SLOWER, plain),
        *worst(
            f"{AUTO} over its theory, one row, acceptance {THEORY_FROM:g} and more",
            OF_THEORY,
            theory,
        ),
        *worst(
            f"parallel over the fastest sequential arm, one row, acceptance {PARALLEL_FROM:g} and "
            "more, ×",
            1.0,
            parallel,
        ),
    ]


def place(point: Data) -> str:
    """Return a point in words."""
    return f"rows {point['rows']}, a = {point['acceptance']:g}, {point['pattern']}"
