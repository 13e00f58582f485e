"""The whole of `sooner bench replay`: point by point, every arm beside its theory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from sooner.methods.threads import Threads
from sooner.parity import compare
from sooner.provenance import provenance

from ..intervals import quotient
from ..protocol import ArmSamples, measure, row
from .arms import Decoders, PointArms
from .expected import Theory, static_tree
from .goals import goals, place
from .realized import realized
from .script import PATTERNS, Process, Script
from .settings import ReplaySettings
from .steps import ForwardTimes, forward_times
from .trees import RankedTree

Figures = dict[str, Any]


def run(settings: ReplaySettings, progress: Callable[[str], None] = print) -> Figures:
    """Measure every point.

    Returns:
        `points`, each with `rows`, `pattern`, `acceptance`, the `steps` that its theory is made of
        and its `arms`; `left_out`, the points that the budget had no room for; `goals`; `model`
        (always `replay`: no figure is of a trained model), `settings`, `provenance`.

    Raises:
        SoonerError: settings that make no script.
    """
    settings.check()
    beside = int("parallel" in settings.methods)
    threads = Threads.plan(settings.threads, is_miniature=True, beside=beside).apply()
    progress("building decoders")
    decoders = Decoders(settings)
    found, left_out = _points(decoders, settings, progress)
    result: Figures = {
        "bench": "replay",
        "model": "replay",
        "settings": asdict(settings),
        "points": found,
        "left_out": left_out,
        "goals": goals(found),
    }
    result["provenance"] = provenance(settings.device, settings.dtype, settings.seed, threads.draft)
    return result


def _points(
    decoders: Decoders, settings: ReplaySettings, progress: Callable[[str], None]
) -> tuple[list[Figures], list[str]]:
    """Every point that the budget has room for, and the places of the others."""
    points, start = settings.points(), time.monotonic()
    found: list[Figures] = []
    left_out: list[str] = []
    took: dict[int, float] = {}  # seconds of the last point by rows
    for number, (rows, pattern, acceptance) in enumerate(points, start=1):
        about = {"rows": rows, "pattern": pattern, "acceptance": acceptance}
        label = f"point {number}/{len(points)} ({place(about)})"
        began = time.monotonic()
        needed = took.get(rows, max(took.values(), default=0.0))
        if settings.budget is not None and began - start + needed > settings.budget and found:
            left_out.append(place(about))
            continue

        def tell(line: str, label: str = label) -> None:
            progress(f"{label}: {line}")

        found.append(_point(decoders, settings, rows, pattern, acceptance, tell))
        took[rows] = time.monotonic() - began
    return found, left_out


def _point(
    decoders: Decoders,
    settings: ReplaySettings,
    rows: int,
    pattern: str,
    acceptance: float,
    progress: Callable[[str], None],
) -> Figures:
    process = Process(acceptance, PATTERNS[pattern], settings.sibling)
    script = Script.draw(process, settings.vocab, settings.new_tokens, settings.seed)
    progress("forwards")
    times = _times(decoders, script, settings, rows)
    theory = Theory(script, times, settings, rows)
    best = theory.best_chain(settings.max_draft_tokens, times.draft(1), may_rest=False)
    made = PointArms(decoders, script, settings, rows, best.draft_tokens or 1)
    with made.arms() as arms:
        measured = measure(arms, settings.inputs(rows), settings.repeats, progress)
    for one in measured:
        for index, runs in enumerate(one.samples):
            texts = made.texts(index)
            one.parity += [
                compare(text, said)
                for sample in runs
                for text, said in zip(texts, sample.tokens, strict=True)
            ]
    plain = next(one for one in measured if one.arm.name == "plain")
    return {
        "rows": rows,
        "pattern": pattern,
        "acceptance": acceptance,
        "plain_over_draft": times.plain / times.draft(1),
        "steps": times.told,
        "arms": [_figures(one, plain, theory, settings.seed) for one in measured],
    }


def _times(decoders: Decoders, script: Script, settings: ReplaySettings, rows: int) -> ForwardTimes:
    """In the middle of the text, of the adapters that decode it."""
    draft = decoders.draft(script)
    made = PointArms(decoders, script, settings, rows, 1)
    trees = {
        "sd-tree": static_tree(),
        "eagle": RankedTree.dynamic(script.process, settings),
    }
    behind = settings.new_tokens // 2
    prompts = made.prompts(0)
    return forward_times(decoders.target, draft, prompts, behind, trees, settings.step_repeats)


def _figures(one: ArmSamples, plain: ArmSamples, theory: Theory, seed: int) -> Figures:
    """One arm against plain decoding, and both against theory.

    `expected_speedup` is theory's at the script's acceptance, `of_theory` the measured share of it;
    `speedup_of_counts` takes the rounds that came out instead.
    """
    told = row(one, plain)
    found: Figures = {
        name: told[name]
        for name in (
            "method", "mode", "parity", "tokens", "tokens_per_second", "decode_speedup",
            "e2e_speedup", "mean_acceptance_length", "accepted_run_length", "nfe",
            "overhead_share", "notes",
        )
        if name in told
    }  # fmt: skip
    found["speedup_of_counts"] = told.get("theory_speedup")
    found["divergences"] = told["divergences"][:4]
    drafts = [seconds for each in one.stats for seconds in each.draft_seconds]
    expected = theory.of(one.arm.name, median(drafts) if drafts else None)
    once = [runs[0].stats for runs in one.samples if runs[0].stats is not None]
    found |= realized(one.arm.name, once, theory.process, seed)
    if expected is not None:
        found |= expected.as_dict()
    if found.get("as_scripted") is False:
        found.pop("decode_speedup", None)
    if "decode_speedup" not in found:
        return found
    found["interval"] = _interval(one, plain, seed)
    if expected is not None:
        found["of_theory"] = found["decode_speedup"] / expected.speedup
    return found


def _interval(one: ArmSamples, plain: ArmSamples, seed: int) -> Sequence[float] | None:
    """95 % interval of the speed-up over plain decoding's run of the same turn."""
    pairs = [
        (own, base)
        for runs, others in zip(one.samples, plain.samples, strict=True)
        for own, base in zip(runs, others, strict=True)
    ]
    rate = [own.decode_tokens for own, _ in pairs], [own.decode_seconds for own, _ in pairs]
    base = [own.decode_tokens for _, own in pairs], [own.decode_seconds for _, own in pairs]
    interval: Sequence[float] | None = quotient(rate, base, seed)["interval"]
    return interval
