"""What a run on an H200 is to reach, and the key of the result by which it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DEVICE = "H200"
GIB = 2**30


@dataclass(frozen=True)
class Goal:
    """One goal.

    Attributes:
        text: what is to be reached.
        key: of the result, whose figure is judged.
        wanted: least value, or most if `is_limit`.
        find: the figure; raises `KeyError` where it was not measured.
    """

    text: str
    key: str
    wanted: float
    find: Callable[[dict[str, Any]], float]
    is_limit: bool = False


def goals(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Every goal beside what the run reached.

    Returns:
        `goal`, `key`, `wanted`, `at_most` (the goal is a limit), `reached`, and `verdict`: `met`,
        `missed`, or `unmeasured` with the `reason`. On another device than an H200, or at other
        shapes, nothing is judged, and `reached` tells what came out.
    """
    return [_judged(goal, result) for goal in GOALS]


def _judged(goal: Goal, result: dict[str, Any]) -> dict[str, Any]:
    told = {"goal": goal.text, "key": goal.key, "wanted": goal.wanted, "at_most": goal.is_limit}
    try:
        reached = goal.find(result)
    except (KeyError, StopIteration, TypeError) as error:
        reason = str(error).strip("'\"") or "the section was not run"
        return {**told, "reached": None, "verdict": "unmeasured", "reason": reason}
    device = result["provenance"]["device"]
    if result["settings"]["device"] == "cpu" or DEVICE not in device:
        reason = f"the goal is an {DEVICE}'s; this is {device}"
        return {**told, "reached": reached, "verdict": "unmeasured", "reason": reason}
    met = reached <= goal.wanted if goal.is_limit else reached >= goal.wanted
    return {**told, "reached": reached, "verdict": "met" if met else "missed"}


def _section(result: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = result["sections"].get(name)
    if found is None or "status" not in found:
        raise KeyError(f"section {name} was not run")
    if found["status"] == "skipped":
        raise KeyError(f"section {name} was skipped: {found['reason']}")
    return found


def _row(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    for row in rows:
        if all(row.get(name) == value for name, value in wanted.items()):
            return row
    raise KeyError(", ".join(f"{name} {value}" for name, value in wanted.items()) + ": no figure")


def _figure(row: dict[str, Any], key: str) -> float:
    if row.get(key) is None:
        raise KeyError(row.get("missing") or row.get("reason") or f"no {key}")
    return float(row[key])


def _arm(result: dict[str, Any], arm: str) -> dict[str, Any]:
    models = _section(result, "step").get("models", [])
    found: dict[str, Any] = _row(models, model=result["settings"]["target"])["arms"].get(arm, {})
    if found.get("identical") is False:
        raise KeyError(f"the text of {arm} is not HF's")
    return found


def _over_compiled(arm: str) -> Callable[[dict[str, Any]], float]:
    def find(result: dict[str, Any]) -> float:
        ours = _figure(_arm(result, arm), "seconds")
        return _figure(_arm(result, "hf-compiled"), "seconds") / ours

    return find


def _verify(result: dict[str, Any]) -> float:
    cells = _section(result, "verify").get("cells", [])
    return _figure(_row(cells, context=32_768, block=16), "over_plain")


def _theory(result: dict[str, Any]) -> float:
    rows = _section(result, "drafts").get("rows", [])
    return _figure(_row(rows, method="speculative", acceptance=0.8), "share_of_theory")


STEP = "sections.step.models[7b].arms"

GOALS = (
    Goal(
        "no kernel is red",
        "sections.kernels.ok",
        1.0,
        lambda result: float(_figure(_section(result, "kernels"), "ok")),
    ),
    Goal(
        "graphs alone, over HF's static cache and compile",
        f"{STEP}: hf-compiled.seconds / sooner-graphs.seconds",
        0.75,
        _over_compiled("sooner-graphs"),
    ),
    Goal(
        "graphs with compile, over HF's static cache and compile",
        f"{STEP}: hf-compiled.seconds / sooner-compiled.seconds",
        1.0,
        _over_compiled("sooner-compiled"),
    ),
    Goal(
        "a compiled plain step, share of the copy bandwidth",
        f"{STEP}.sooner-compiled.share_of_copy",
        0.75,
        lambda result: _figure(_arm(result, "sooner-compiled"), "share_of_copy"),
    ),
    Goal(
        "a verification of 16 over a plain step, behind 32,768 tokens",
        "sections.verify.cells[context 32768, block 16].over_plain",
        1.15,
        _verify,
        is_limit=True,
    ),
    Goal(
        "speculative decoding at acceptance 0.8, share of theory",
        "sections.drafts.rows[speculative, 0.8].share_of_theory",
        0.9,
        _theory,
    ),
    Goal(
        "all graphs, GiB beyond weights and KV",
        "sections.graphs.bytes / 2**30",
        2.0,
        lambda result: _figure(_section(result, "graphs"), "bytes") / GIB,
        is_limit=True,
    ),
)
