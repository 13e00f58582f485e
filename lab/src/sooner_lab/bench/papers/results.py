"""Results by name, and whether their figures may be quoted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

from ...theory import reproduce, tables
from ..parallel.run import lossy_rows
from ..run import quotient

Figures = dict[str, Any]
THEORY = "theory"
"""The result that is calculated, not read."""
PART = re.compile(r"[^.\[]+")


class Results:
    """The JSONs of a folder, each read once.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Figures | None] = {}

    def get(self, name: str) -> Figures | None:
        """The result of that name, with the views that tables need; `None` without a file.

        Raises:
            SoonerError: the file is no JSON of a bench.
        """
        if name == THEORY:
            return self._theory
        if name not in self._read:
            self._read[name] = self._load(name)
        return self._read[name]

    def is_clean(self, name: str, key: str) -> bool:
        """Was the part that a key leads into measured at a revision that is committed whole?"""
        result = self.get(name)
        if result is None or name == THEORY:
            return True
        match = PART.match(key)
        part = match[0] if match else ""
        for run in result.get("kept", []):
            if part in run["parts"]:
                return not run["provenance"]["git_dirty"]
        return not result["provenance"]["git_dirty"]

    def origins(self) -> dict[str, Figures]:
        """Revision and date of every result that was read."""
        return {
            name: {field: result["provenance"][field] for field in ("git", "git_dirty", "date")}
            for name, result in sorted(self._read.items())
            if result is not None
        }

    def _load(self, name: str) -> Figures | None:
        path = self.folder / f"{name}.json"
        if not path.is_file():
            return None
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            view = VIEWS.get(result["bench"], dict)
            _ = result["provenance"]["git_dirty"]
            return {**result, **view(result)}
        except (ValueError, KeyError, TypeError) as error:
            raise SoonerError(
                f"'{path}' is no result of `sooner bench`: {type(error).__name__} {error}; make "
                "one with --json"
            ) from error

    @cached_property
    def _theory(self) -> Figures:
        return theory()


def theory() -> Figures:
    """The paper's tables from its own step times; table 1 as means over its data sets."""
    methods = {"vanilla SD": "vanilla", "ParallelVLM": "parallel"}
    names = {pair.name: name for name, pair in tables.PAIRS.items()}
    speeds: dict[tuple[str, str], list[float]] = {}
    for cell in reproduce.table1():
        pair, method = cell.row.split(", ")
        speeds.setdefault((names[pair], methods[method]), []).append(cell.ours)
    latency: dict[str, Figures] = {}
    for cell in reproduce.table6():
        latency.setdefault(cell.row, {"method": cell.row})[cell.column] = cell.ours
    return {
        "table1": [
            {"pair": pair, "method": method, "speedup": sum(values) / len(values)}
            for (pair, method), values in speeds.items()
        ],
        "table6": list(latency.values()),
        "table7": [
            {**asdict(cell), "pruned": cell.column, "speedup": cell.ours}
            for cell in reproduce.table7()
        ],
    }


def _parallel(result: Mapping[str, Any]) -> Figures:
    """Exact arms beside lossy ones."""
    return {"lossy": lossy_rows(result["arms"])}


def _documents(result: Mapping[str, Any]) -> Figures:
    """Return rates of each arm on all pages, by priced forwards (`rates`) and by this CPU's clock
    on pages that were timed (`clocked`, drafts included; pruned arms over the pruned plain one),
    and the quality of drafts and of stage 1."""
    by_ocr = [row for row in result["readings"] if row["drafter"] == "ocr"]
    counted, timed = (
        [row for row in by_ocr if row["part"] == part] for part in ("counts", "clocks")
    )
    both = [row for row in counted if row["method"] == "hsd"]
    quality = {"draft": _mean(both, "draft_quality"), "stage 1": _mean(both, "stage_quality")}
    clocked = _rates(timed, "cpu_", has_drafter=True)
    return {"rates": _rates(counted, "priced_"), "clocked": clocked, "quality": quality}


def _rates(readings: Sequence[Figures], clock: str, has_drafter: bool = False) -> list[Figures]:
    """Return, for each arm, accepted draft tokens a verification step (`aal`, eq. 14 of HSD) and
    tokens a second over plain decoding's on the same pages, each with its 95 % interval
    (`aal_interval`).

    Args:
        readings: an arm on a page each.
        clock: before `decode` and `e2e` in the names of seconds; clocks are never mixed.
        has_drafter: whether the drafter's seconds are added, for clocks that do not hold them.
    """
    by_arm: dict[str, dict[str, Figures]] = {}
    for reading in readings:
        by_arm.setdefault(reading["method"], {})[reading["page"]] = reading
    rows = []
    for method, pages in by_arm.items():
        plain = by_arm["plain-pruned" if method.endswith("pruned") else "plain"]
        pairs = [(page, plain[name]) for name, page in pages.items() if name in plain]
        ones = [1.0] * len(pages)
        counts = [[page[name] for page in pages.values()] for name in ("accepted", "steps")]
        figures = {"aal": quotient((counts[0], counts[1]), (ones, ones), seed=0)}
        for key in ("decode", "e2e"):
            seconds = [
                [side[clock + key] + has_drafter * side["draft_seconds"] for side in pair]
                for pair in pairs
            ]
            ours, base = (
                ([pair[side]["tokens"] for pair in pairs], [spent[side] for spent in seconds])
                for side in (0, 1)
            )
            figures[key] = quotient(ours, base, seed=0)
        row: Figures = {"method": method}
        for key, each in figures.items():
            row |= {key: each["value"], f"{key}_interval": each["interval"]}
        rows.append(row)
    return rows


def _canvas(result: Mapping[str, Any]) -> Figures:
    """Return forwards of a drawing by arm (`counts`) and its processor seconds (`clocks`): `mean`,
    and plain decoding's over it on the same drawings (`fewer`) with its 95 % interval."""
    view: dict[str, list[Figures]] = {"counts": [], "clocks": []}
    plain: Figures = {}
    for reading in sorted(result["readings"], key=lambda each: each["arm"] != "plain"):
        if (part := reading["part"]) not in view:
            continue
        values = reading["forwards" if part == "counts" else "cpu_seconds"]
        base = plain.setdefault(part + reading["kind"], values)  # plain decoding comes first
        ones = [1.0] * len(values)
        fewer = quotient((ones, values), (ones, base), seed=0)
        view[part].append(
            {name: reading[name] for name in ("kind", "arm", "start", "window")}
            | {"mean": sum(values) / len(values), "drawings": len(values)}
            | {"fewer": fewer["value"], "interval": fewer["interval"]}
        )
    return view


def _arm(result: Mapping[str, Any]) -> Figures:
    """Return what success differs by at r = 9 from plain decoding's on the same starts."""
    goal = next(each for each in result["goals"] if each["goal"] == "success at r=9")
    return {"spans": {"plain": [0.0, 0.0], "success": goal["interval"]}}


def _mean(rows: list[Figures], name: str) -> float | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) / len(known) if known else None


VIEWS = {"parallel": _parallel, "documents": _documents, "canvas": _canvas, "arm": _arm}
"""What a bench's tables make of its readings, by bench."""
