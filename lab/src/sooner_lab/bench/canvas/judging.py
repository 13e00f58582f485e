"""Ratios of forwards with their intervals, the gate, and the goals, held against `settings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..documents.judging import rows_of
from ..intervals import quotient
from .settings import (
    BUG,
    COLD,
    COUPLED,
    ENTROPY_RANGE,
    FALSE_ALARMS,
    JUDGED_WINDOW,
    LEARNT,
    NEAR,
    OVER_SJD,
    PAPER_SJD,
    POWER_LEVEL,
    SURE,
    CanvasSettings,
)

Figures = dict[str, Any]
NO_INTERVAL = {"interval": None}


def over(base: Figures, own: Figures, clock: str, seed: int) -> Figures:
    """How many times what one arm spends another does, of the same drawings, by one clock.

    Args:
        base, own: readings; both have lists under `clock`, of each drawing.
        clock: `forwards` or `cpu_seconds`; never one of each.
        seed: of the bootstrap over drawings.
    """
    ones = [1.0] * len(own[clock])
    return quotient((ones, own[clock]), (ones, base[clock]), seed)


def one_of(readings: Sequence[Figures], **wanted: Any) -> Figures | None:
    """The reading with these values, if there is one."""
    return next(iter(rows_of([one for one in readings if wanted.keys() <= one.keys()], **wanted)),
                None)  # fmt: skip


def gate(result: Figures, settings: CanvasSettings) -> list[Figures]:
    """What decides whether this world may judge; a line each."""
    found = _judges(result["quality"])
    found += _worlds(result["entropy"]) if "entropy" in result else [_learnt(result["real"])]
    for kind, paper in PAPER_SJD.items():
        at = {"part": "counts", "kind": kind, "window": JUDGED_WINDOW[kind]}
        sjd = one_of(result["readings"], arm="sjd", start="random", **at)
        plain = one_of(result["readings"], part="counts", kind=kind, arm="plain")
        if sjd and plain:
            reached = over(plain, sjd, "forwards", settings.seed)
            low, high = (1 - NEAR) * paper, (1 + NEAR) * paper
            found.append(
                {"gate": f"{kind}s: forwards, plain over SJD from random, L={at['window']}",
                 "wanted": f"{low:.2f} to {high:.2f} (paper: {paper:g})", **reached,
                 "passed": low <= reached["value"] <= high}
            )  # fmt: skip
    for one in rows_of(result["readings"], part="oracle"):
        most = max(one["forwards"])
        found.append(
            {"gate": f"{one['kind']}s whose codes hang on nothing (rho 0): forwards of "
             f"{one['arm']} from last, L={one['window']}", "wanted": f"{one['wanted']}",
             "value": float(most), **NO_INTERVAL,
             "passed": {one["wanted"]} == set(one["forwards"])}
        )  # fmt: skip
    for one in rows_of(result["readings"], part="counts", arm="plain"):
        found.append(
            {"gate": f"{one['kind']}s: forwards of plain decoding", "wanted": f"{one['tokens']}",
             "value": float(max(one["forwards"])), **NO_INTERVAL,
             "passed": {one["tokens"]} == set(one["forwards"])}
        )  # fmt: skip
    return found


def _judges(quality: Figures) -> list[Figures]:
    """The judge of quality: what it must reject, what it must not, its false alarms."""
    found = []
    wrong = ("GSD", f"T = {COLD:g}", "random codes", "codes of other pictures")
    for one in quality["arms"]:
        if one["arm"] in wrong:
            wanted, passed = f"p below {POWER_LEVEL:g}", one["p"] < POWER_LEVEL
        elif one["arm"] == "plain":
            wanted, passed = f"p at least {POWER_LEVEL:g}", one["p"] >= POWER_LEVEL
        else:
            continue
        found.append({"gate": f"judge: {one['arm']}", "wanted": wanted, "value": one["p"],
                      **NO_INTERVAL, "passed": passed})  # fmt: skip
    alarms = quality["false_alarms"]
    found.append(
        {"gate": f"judge: false alarms of {quality['nulls']} null splits, share",
         "wanted": f"at most {FALSE_ALARMS:g}", "value": alarms, **NO_INTERVAL,
         "passed": alarms <= FALSE_ALARMS}
    )  # fmt: skip
    return found


def _learnt(real: Figures) -> Figures:
    """Whether a decoder learnt what codes hang on."""
    less = real["by_frequency"] - real["nats"]
    return {"gate": "nats of a code of a real texture, less than by its frequency",
            "wanted": f"at least {LEARNT:g}", "value": less, **NO_INTERVAL,
            "passed": less >= LEARNT}  # fmt: skip


def _worlds(entropy: Figures) -> list[Figures]:
    low, high = ENTROPY_RANGE
    return [
        {"gate": f"{kind}s: nats of a code", "wanted": f"{low:g} to {high:g}", "value": value,
         **NO_INTERVAL, "passed": low <= value <= high}
        for kind, value in entropy.items()
    ]  # fmt: skip


def goals(readings: Sequence[Figures], settings: CanvasSettings) -> list[Figures]:
    """SJD's forwards over each coupled arm's from the same start, at the window that is judged."""
    found = []
    for kind, window in JUDGED_WINDOW.items():
        for start in settings.starts_of(kind):
            at = {"part": "counts", "kind": kind, "start": start, "window": window}
            sjd = one_of(readings, arm="sjd", **at)
            for arm in COUPLED:
                own = one_of(readings, arm=arm, **at)
                if sjd is None or own is None:
                    continue
                reached = over(sjd, own, "forwards", settings.seed)
                met = reached["value"] >= OVER_SJD and reached["interval"][0] > SURE
                what = f"{kind}s, L={window}: forwards, SJD over {arm}, both from {start}"
                found.append({"goal": what, "wanted": OVER_SJD, **reached, "met": bool(met)})
    return found


def faults(result: Figures) -> list[str]:
    """Arms that are exact and whose drawings are not the law's."""
    quality = result.get("quality") or {"arms": []}
    return [
        f"{one['arm']}: its drawings are not the law's (p = {one['p']:.1e})"
        for one in quality["arms"]
        if one["exact"] and one["p"] < BUG
    ]
