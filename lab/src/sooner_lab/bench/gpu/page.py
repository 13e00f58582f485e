"""The page of `sooner bench gpu`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..declared import Data, times, value_of
from ..render import Columns, Page, ReportTable, Table, cell

TIMES: Columns = (
    ("arm", "arm", "{}"), ("acceptance", "accepted", "{}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"), ("over_plain", "over plain", "{:.2f}×"),
    (times("round_seconds", 1e3), "round ms", "{:.2f}"),
    ("tokens_a_round", "tokens a round", "{:.2f}"), ("break_even", "pays from", "{:.2f}"),
    ("share_of_theory", "of theory", "{:.0%}"),
    ("first_call_seconds", "first call s", "{:.2f}"), ("call_seconds", "call s", "{:.2f}"),
    ("captures", "captures", "{}"), ("kernels", "kernels", "{:.0f}"),
    ("launches", "launches", "{:.0f}"), ("idle_share", "GPU idle", "{:.0%}"),
)  # fmt: skip
PREFILL: Columns = (
    ("tokens", "tokens", "{:,}"), ("arm", "arm", "{}"), (times("seconds", 1e3), "ms", "{:.2f}"),
    ("over_sdpa", "over SDPA", "{:.2f}×"), ("share_reached", "of what FLOPs allow", "{:.0%}"),
)  # fmt: skip
TABLES: dict[str, tuple[str, str, Columns]] = {
    "step": ("Plain step", "models",
             (("model", "model", "{}"), *TIMES, ("share_of_copy", "of a copy", "{:.0%}"))),
    "methods": ("Drafts", "rows", TIMES),
    "verify": ("Verification", "cells", (
        ("context", "context", "{}"), ("arm", "arm", "{}"), ("block", "block", "{}"),
        (times("seconds", 1e3), "ms", "{:.2f}"), ("over_plain", "over a plain step", "{:.2f}×"))),
    "video": ("Behind a long video", "rows", TIMES),
    "engine": ("Engine, requests that join and leave", "arms", (
        ("arm", "arm", "{}"), ("wave", "wave", "{}"), ("tokens_per_second", "tokens/s", "{:.0f}"),
        (times("round_seconds", 1e3), "round ms", "{:.2f}"), ("captures", "captures", "{}"))),
    "kernels": ("Block attention", "cells", (
        ("context", "context", "{}"), ("rows", "rows", "{}"), ("block", "block", "{}"),
        ("error", "error", "{}"), (times("seconds", 1e6), "µs", "{:.1f}"),
        ("share_of_copy", "of a copy", "{:.0%}"), ("best", "torch's best", "{}"))),
    "prefill": ("Sparse prefill, one layer", "lengths", PREFILL),
    "prefill-1m": ("Sparse prefill, one layer", "lengths", PREFILL),
}  # fmt: skip
"""By section: the title, the key of its rows, and their columns; that of the graphs is a goal."""


def section_table(name: str, figures: Mapping[str, Any]) -> list[ReportTable]:
    """Return the table of a section in a list; columns without a figure are left out."""
    title, key, columns = TABLES[name]
    flat = [row for each in figures.get(key, []) for row in _flat(each)]
    rows = [row for row in flat if "missing" not in row]
    used = [each for each in columns if any(value_of(row, each[0]) is not None for row in rows)]
    missing = [f"{_label(row)}: {row['missing']}" for row in flat if "missing" in row]
    remarks = [figures["note"]] if figures.get("note") else []
    remarks += [f"Left out: {'; '.join(missing)}."] if missing else []
    return Table(title, lambda _: rows, used, " ".join(remarks)).render({})


def _flat(row: Mapping[str, Any]) -> Iterable[Data]:
    """Yield a row as it is, or one for each of its arms or waves, with its labels."""
    labels = {name: each for name, each in row.items() if not isinstance(each, dict | list)}
    if "checks" in row:
        yield labels | _kernel(row)
    elif isinstance(row.get("arms"), dict):
        yield from ({**labels, "arm": name, **each} for name, each in row["arms"].items())
    elif "waves" in row:
        yield from ({**labels, "wave": n, **each} for n, each in enumerate(row["waves"], 1))
        if "missing" in row:
            yield dict(row)
    else:
        yield {**row, **labels}


def _kernel(row: Mapping[str, Any]) -> Data:
    """A cell of block attention beside the quickest of torch's own."""
    errors = [check["error"] for check in row["checks"]]
    error = "–" if None in errors else f"{max(errors):.1e}"
    arms = dict(row.get("arms", {}))
    ours = arms.pop("sooner", {})
    timed = {arm["seconds"]: name for name, arm in arms.items() if "seconds" in arm}
    best = f"{timed[min(timed)]} {1e6 * min(timed):.1f}" if timed else None
    return {"error": error if row["ok"] else f"{error} red", "best": best, **ours}


def _label(row: Mapping[str, Any]) -> str:
    parts = [str(row[key]) for key in ("model", "context", "rows", "arm", "block") if key in row]
    return " ".join(parts)


def _sections(result: Data) -> list[ReportTable]:
    tables = (
        section_table(name, part) for name, part in result["sections"].items() if name in TABLES
    )
    return [table for part in tables for table in part]


def _states(result: Data) -> list[Data]:
    """How each section ended."""
    return [
        {
            "section": name,
            "status": part.get("status", "running"),
            "seconds": part.get("section_seconds"),
            "peak": part.get("peak_bytes") and part["peak_bytes"] / 2**30,
            "why": part.get("error") or part.get("reason") or ", ".join(part.get("cut", [])),
        }
        for name, part in result["sections"].items()
    ]


def _copy(result: Data) -> str:
    rate, share = (
        result["bandwidth"].get(f"{name}") for name in ("bytes_per_second", "share_of_data_sheet")
    )
    remark = f"A copy reads and writes {cell(rate and rate / 1e9, '{:.0f}')} GB/s"
    return remark + (f", {share:.0%} of the data sheet's." if share else ".")


def _about(result: Data) -> list[str]:
    gpu = result["provenance"].get("gpu")
    if gpu is None:
        return []
    size = f"{gpu['memory'] / 2**30:.0f} GiB"
    return ["", f"Driver {gpu['driver']}, CUDA {gpu['cuda']}, {size}."]


PAGE = Page(
    lambda result: f"GPU: {result['model']}",
    (
        Table(
            "Sections",
            _states,
            (
                ("section", "section", "{}"), ("status", "status", "{}"),
                ("seconds", "seconds", "{:.0f}"), ("peak", "peak GiB", "{:.1f}"),
                ("why", "why", "{}"),
            ),
            _copy,
        ),
        _sections,
    ),
    intro=_about,
)  # fmt: skip
