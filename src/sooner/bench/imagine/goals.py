"""The paper's figures that are to be reached, beside what a run reached."""

from __future__ import annotations

from typing import Any

COUPLED = ("maximal", "gumbel", "gumbel-noise")
STILL = 1.05
"""A window that is doubled and saves less than this factor has stopped helping."""
LARGEST = {"image": 64, "video": 128}
"""The last windows of the paper's tables 1 and 2. Beyond, a window holds half a small picture."""


def goals(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry a figure: `goal`, `wanted`, `reached`, `met`; what was not measured is left out."""
    found = []
    for kind in ("image", "video"):
        arms = [arm for arm in result["arms"] if arm["kind"] == kind]
        if arms:
            found += _reductions(kind, arms)
            found += _windows(kind, arms)
    for kind in ("image", "video"):
        told = result.get(kind, {})
        if batch := told.get("batch"):
            what = f"{kind}: batch of {batch['rows']}, tokens/s over a batch of one"
            found.append(_goal(what, 3.0, batch["speedup"]))
        if pieces := told.get("breakdown"):
            found.append(_sampling(kind, pieces["steps"]))
    return found


def _sampling(kind: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """The paper's limit: all sampling operations together under 5 % of a step."""
    worst = max(steps, key=lambda one: one["sampling_share"])
    what = f"{kind}: draws and verification, % of a step ({worst['coupling']} L={worst['window']})"
    share = 100 * worst["sampling_share"]
    return {"goal": what, "wanted": "below 5", "reached": share, "met": share < 5}


def _reductions(kind: str, arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fewer forwards, and less time, at the best window of the better coupling."""
    coupled = [arm for arm in arms if arm["method"] in COUPLED]
    if not coupled:
        return []
    forwards, time = {"image": (4.2, 2.5), "video": (13.0, 6.0)}[kind]
    best = max(coupled, key=lambda arm: arm["nfe_reduction"])
    fastest = max(coupled, key=lambda arm: arm.get("decode_speedup", 0.0))
    where = f"{best['method']} L={best['window']}"
    found = [_goal(f"{kind}: forwards, plain over {where}", forwards, best["nfe_reduction"])]
    sjd = _at(arms, "sjd", best["window"])
    if sjd is not None:
        found.append(_goal(f"{kind}: forwards, SJD over {where}", 1.8, sjd["nfe"] / best["nfe"]))
    if "decode_speedup" in fastest:
        what = f"{kind}: decoding time, plain over {fastest['method']} L={fastest['window']}"
        found.append(_goal(what, time, fastest["decode_speedup"]))
    return found


def _windows(kind: str, arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last doubling of the window helps coupled draws and no longer SJD."""
    found = []
    for method in ("sjd", *COUPLED):
        line = sorted(
            (arm["window"], arm["nfe"])
            for arm in arms
            if arm["method"] == method and arm["window"] <= LARGEST[kind]
        )
        if len(line) < 2:
            continue
        (before, more), (last, fewer) = line[-2:]
        gain = more / fewer
        what = f"{kind}: forwards of {method}, L={before} over L={last}"
        found.append(
            {
                "goal": what,
                "wanted": f"{'below' if method == 'sjd' else 'above'} {STILL}",
                "reached": gain,
                "met": (gain < STILL) == (method == "sjd"),
            }
        )
    return found


def _goal(what: str, wanted: float, reached: float) -> dict[str, Any]:
    return {"goal": what, "wanted": wanted, "reached": reached, "met": reached >= wanted}


def _at(arms: list[dict[str, Any]], method: str, window: int) -> dict[str, Any] | None:
    return next((arm for arm in arms if arm["method"] == method and arm["window"] == window), None)
