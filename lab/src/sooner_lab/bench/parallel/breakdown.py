"""Table 6: where the time of plain, vanilla speculative and parallel decoding goes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

Figures = dict[str, Any]
COLUMNS = ("plain", "speculative", "speculative-auto", "parallel")
"""Autoregressive, SD and ParallelVLM of the paper, and SD that chooses its window."""


def breakdown(result: Figures) -> list[tuple[str, list[str]]]:
    """Rows of `(operation, a cell for each of COLUMNS)`, seconds a clip unless they say otherwise.

    `parallel` hides its draft: what of the draft's vision and prefill lies behind the target's
    prefill, and its drafting, come from the watched runs.
    """
    arms = {arm["method"]: arm for arm in result["arms"]}
    runs = [run["phases"] for run in result.get("timeline", [])]
    columns = [_column(arms.get(name), name, runs) for name in COLUMNS]
    names = list(dict.fromkeys(name for column in columns for name in column))
    memory = result.get("memory") or {}
    rows = [(name, [column.get(name, "–") for column in columns]) for name in names]
    if memory:
        cells = [f"{memory[name] / 2**20:.0f}" if name in memory else "–" for name in COLUMNS]
        rows.insert(0, ("peak memory, MiB", cells))
    return rows


def _column(arm: Figures | None, name: str, runs: Sequence[Figures]) -> dict[str, str]:
    if arm is None or "seconds" not in arm:
        return {}
    spent = arm["seconds"]
    is_hidden = name == "parallel"
    cells = {
        "vision": _seconds(spent["vision"]),
        "target prefill": _seconds(spent["prefill"]),
        "draft prefill": "–" if name == "plain" else _seconds(spent["draft_prefill"]),
        "drafting": "–" if name == "plain" else _seconds(spent["draft"]),
        "verifying": _seconds(spent["verify"]),
        "waiting and bookkeeping": "–",
        "rest": _seconds(spent["other"]),
        "total": _seconds(sum(spent.values())),
        "tokens/s": f"{arm['tokens_per_second']:.1f}" if arm.get("tokens_per_second") else "–",
        "time to first token over plain's": f"{arm['first_token_ratio']:.2f}×"
        if arm.get("first_token_ratio")
        else "–",
    }
    if is_hidden:
        cells["draft prefill"] = _hidden(runs, "draft_hidden", "draft_exposed")
        cells["drafting"] = _hidden(runs, "draft_seconds")
        cells["waiting and bookkeeping"] = _seconds(spent["draft"])
    return cells


def _hidden(runs: Sequence[Figures], hidden: str, exposed: str | None = None) -> str:
    if not runs:
        return "hidden"
    told = f"{_seconds(fmean(run[hidden] for run in runs))} hidden"
    if exposed is not None:
        told += f", {_seconds(fmean(run[exposed] for run in runs))} exposed"
    return told


def _seconds(value: float) -> str:
    return f"{value:.3f}"
