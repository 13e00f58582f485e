"""What `sooner bench imagine` is to reach: the paper's figures, fixed before the run."""

from __future__ import annotations

from ..goals import goal
from ..run import Data

METHOD = "gumbel"
"""The coupling that goals are about, the default of `CoupledJacobi`."""
STILL = 1.05
"""A window that is doubled and saves less than this factor has stopped helping."""
FIXED = {"image": 64, "video": 128}
"""The window that goals are about: the last ones of the paper's tables 1 and 2, so that no goal is
met by the best of many windows."""
BOUNDS = {"image": (4.2, 2.5), "video": (13.0, 6.0)}
"""Least ratios of plain decoding's forwards and decoding time to the coupled arm's."""


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured.

    Both sides of a ratio start from the same first drafts, or the start's gain would be told as the
    coupling's.
    """
    rows = []
    for kind in FIXED:
        arms = [arm for arm in result["arms"] if arm["kind"] == kind]
        for init in dict.fromkeys(arm["init"] for arm in arms if arm.get("init")):
            rows += _reductions(kind, arms, init) + _windows(kind, arms, init)
    for kind in FIXED:
        if batch := result.get(kind, {}).get("batch"):
            name = f"{kind}: batch of {batch['rows']}, tokens/s over a batch of one"
            rows.append(goal(name, 3.0, batch["speedup"]))
    return rows


def _reductions(kind: str, arms: list[Data], init: str) -> list[Data]:
    """Judge fewer forwards than plain and SJD, and less time than plain."""
    coupled = _at(arms, METHOD, FIXED[kind], init)
    if coupled is None:
        return []
    (forwards, time), where = BOUNDS[kind], f"{METHOD}, L={FIXED[kind]}"
    name = f"{kind}: forwards, plain over {where} from {init}"
    rows = [goal(name, forwards, coupled["nfe_reduction"])]
    if (sjd := _at(arms, "sjd", FIXED[kind], init)) is not None:
        name = f"{kind}: forwards, SJD over {where}, both from {init}"
        rows.append(goal(name, 1.8, sjd["nfe"] / coupled["nfe"]))
    if "decode_speedup" in coupled:
        name = f"{kind}: decoding time, plain over {where} from {init}"
        rows.append(goal(name, time, coupled["decode_speedup"]))
    return rows


def _windows(kind: str, arms: list[Data], init: str) -> list[Data]:
    """Judge that the doubling that ends at the fixed window helps coupled draws and not SJD."""
    rows, last = [], FIXED[kind]
    for method in ("sjd", METHOD):
        fewer, more = (_at(arms, method, window, init) for window in (last, last // 2))
        if fewer is None or more is None:
            continue
        name = f"{kind}: forwards of {method}, L={last // 2} over L={last}, both from {init}"
        rows.append(goal(name, STILL, more["nfe"] / fewer["nfe"], is_upper=method == "sjd"))
    return rows


def _at(arms: list[Data], method: str, window: int, init: str) -> Data | None:
    key = (method, window, init)
    matches = (arm for arm in arms if (arm["method"], arm["window"], arm.get("init")) == key)
    return next(matches, None)
