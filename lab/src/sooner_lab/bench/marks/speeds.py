"""All that is timed on the world of marks, and what it is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import settings as fixed
from .reading import MarkReader
from .speed import PLAIN, SpeedArm, SpeedRun, best_window, over

Figures = dict[str, Any]
Progress = Callable[[str], None]


def speeds(reader: MarkReader, draft: str, clips: int, progress: Progress) -> Figures:
    """Windows on calibration clips; then one row, one row sampled, and a batch, on judged clips.

    Args:
        draft: name of its checkpoint.
        clips: at most so many; fewer than `settings.SPEED_CLIPS` are a trial.

    Returns:
        `windows` and `runs`, each with its `arms`, and `goals`.
    """
    count = min(clips, fixed.SPEED_CLIPS)
    tried = [SpeedArm(PLAIN), *(by_turns(a, w) for a in (0.0, fixed.ALPHA) for w in fixed.WINDOWS)]
    few = SpeedRun(1, 0.0, min(clips, fixed.WINDOW_CLIPS), 1, fixed.CALIBRATION_SEED)
    windows = few.measure(reader, draft, tried, progress)
    best = {alpha: best_window(windows, alpha) for alpha in (0.0, fixed.ALPHA)}
    rivals = [SpeedArm(PLAIN), *(by_turns(alpha, best[alpha]) for alpha in (0.0, fixed.ALPHA))]
    pair = [*rivals, SpeedArm("parallel"), SpeedArm("parallel", fixed.ALPHA)]
    every = [*rivals, *(by_turns(alpha, None) for alpha in (0.0, fixed.ALPHA))]
    every += [SpeedArm("parallel", alpha) for alpha in fixed.SPEED_ALPHAS]
    every += [SpeedArm("parallel", fixed.ALPHA, is_self=True)]
    found = []
    for rows, temperature, arms in ((1, 0.0, every), (1, 1.0, pair), (fixed.BATCHES[1], 0.0, pair)):
        batches = count if rows == 1 else max(count // fixed.BATCHES[1], 1)
        timed = SpeedRun(rows, temperature, batches, fixed.SPEED_REPEATS, fixed.CLIP_SEED)
        told = timed.measure(reader, draft, arms, progress)
        about = {"rows": rows, "temperature": temperature, "batches": batches}
        found.append({**about, "arms": told, "compared": _compared(told, best)})
    return {"draft": draft, "windows": windows, "runs": found, "goals": goals(found[0], best)}


def baselines(reader: MarkReader, draft: str, clips: int, progress: Progress) -> Figures:
    """Table 1's baselines as the paper has them, one row, greedy: with the draft, and with the
    target as its own draft. Arguments as of `speeds`.

    Returns:
        `arms`, and `batches`.
    """
    count, tokens = min(clips, fixed.SPEED_CLIPS), fixed.BASELINE_TOKENS
    arms = [SpeedArm(PLAIN), by_turns(0.0, tokens), SpeedArm("onsd"), SpeedArm("sd-tree")]
    arms += [SpeedArm("specvlm", fixed.ALPHA), SpeedArm("parallel", fixed.ALPHA)]
    arms += [SpeedArm("onsd", is_self=True)]
    arms += [
        SpeedArm(name, fixed.ALPHA, is_self=True)
        for name in ("specvlm", "sparse-to-dense", "parallel")
    ]
    timed = SpeedRun(1, 0.0, count, 1, fixed.CLIP_SEED)
    return {"arms": timed.measure(reader, draft, arms, progress), "batches": count}


def by_turns(alpha: float, window: int | None) -> SpeedArm:
    return SpeedArm("by-turns", alpha, window)


def _compared(arms: Sequence[Figures], best: dict[float, int]) -> Figures:
    """Speed of `parallel`, pruned, over its rivals by turns at their best windows."""
    ours = _of(arms, SpeedArm("parallel", fixed.ALPHA))
    return {
        name: over(ours, _of(arms, by_turns(alpha, best[alpha])), fixed.CLIP_SEED)
        for name, alpha in (("pruned", fixed.ALPHA), ("unpruned", 0.0))
    }


def goals(run: Figures, best: dict[float, int]) -> list[Figures]:
    """What one row, greedy, is to reach; fixed in `settings` before any result."""
    ours = _of(run["arms"], SpeedArm("parallel", fixed.ALPHA))
    whole = _of(run["arms"], SpeedArm("parallel"))
    found = [
        (
            f"parallel over the same pruned draft by turns, window {best[fixed.ALPHA]}, ×",
            fixed.PARALLEL_OVER_SEQUENTIAL,
            run["compared"]["pruned"]["value"],
        ),
        (
            f"parallel over the unpruned draft by turns, window {best[0.0]}, ×",
            fixed.PARALLEL_OVER_UNPRUNED,
            run["compared"]["unpruned"]["value"],
        ),
        ("parallel, of what the simulator makes of it", fixed.OF_THEORY,
         ours.get("share_of_simulation")),
        (f"c at α {fixed.ALPHA:g} over c without pruning", fixed.SPEED_RATIO,
         ours["speed_ratio"] / whole["speed_ratio"]
         if "speed_ratio" in ours and "speed_ratio" in whole else None),
    ]  # fmt: skip
    return [
        {
            "goal": what,
            "wanted": f"at least {wanted:g}",
            "reached": reached,
            "met": reached is not None and reached >= wanted,
        }
        for what, wanted, reached in found
    ]


def _of(arms: Sequence[Figures], wanted: SpeedArm) -> Figures:
    return next(one for one in arms if one["label"] == wanted.label)
