"""The tables of a GPU result, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..pages import ReportTable, cell, head, sections

Columns = Mapping[str, tuple[str, str, float]]
"""Head of a column -> key of a row, format, and factor of its value."""

TIMES: Columns = {
    "arm": ("arm", "{}", 1),
    "accepted": ("acceptance", "{}", 1),
    "tokens/s": ("tokens_per_second", "{:.1f}", 1),
    "over plain": ("over_plain", "{:.2f}×", 1),
    "round ms": ("round_seconds", "{:.2f}", 1e3),
    "tokens a round": ("tokens_a_round", "{:.2f}", 1),
    "pays from": ("break_even", "{:.2f}", 1),
    "of theory": ("share_of_theory", "{:.0%}", 1),
    "first call s": ("first_call_seconds", "{:.2f}", 1),
    "call s": ("call_seconds", "{:.2f}", 1),
    "captures": ("captures", "{}", 1),
    "kernels": ("kernels", "{:.0f}", 1),
    "launches": ("launches", "{:.0f}", 1),
    "GPU idle": ("idle_share", "{:.0%}", 1),
}


def _with(columns: Columns, **more: str) -> Columns:
    """Columns behind those of labels."""
    return {**{name: (key, "{}", 1) for name, key in more.items()}, **columns}


TABLES: dict[str, tuple[str, str, Columns]] = {
    "step": ("Plain step", "models", _with(
        {**TIMES, "of a copy": ("share_of_copy", "{:.0%}", 1)}, model="model")),
    "methods": ("Drafts", "rows", TIMES),
    "verify": ("Verification", "cells", {
        "context": ("context", "{}", 1), "arm": ("arm", "{}", 1), "block": ("block", "{}", 1),
        "ms": ("seconds", "{:.2f}", 1e3), "over a plain step": ("over_plain", "{:.2f}×", 1)}),
    "video": ("Behind a long video", "rows", TIMES),
    "engine": ("Engine, requests that join and leave", "arms", {
        "arm": ("arm", "{}", 1), "wave": ("wave", "{}", 1),
        "tokens/s": ("tokens_per_second", "{:.0f}", 1),
        "round ms": ("round_seconds", "{:.2f}", 1e3), "captures": ("captures", "{}", 1)}),
    "kernels": ("Block attention", "cells", {
        "context": ("context", "{}", 1), "rows": ("rows", "{}", 1), "block": ("block", "{}", 1),
        "error": ("error", "{}", 1), "µs": ("seconds", "{:.1f}", 1e6),
        "of a copy": ("share_of_copy", "{:.0%}", 1), "torch's best": ("best", "{}", 1)}),
    "rows": ("Batches", "cells", _with(
        {**TIMES, "over one row": ("over_one_row", "{:.2f}×", 1)}, rows="rows")),
    "waits": ("Waits of a round", "methods", {
        "method": ("method", "{}", 1), "first": ("first", "{}", 1), "all": ("places", "{}", 1)}),
    "prefill": ("Sparse prefill, one layer", "lengths", {
        "tokens": ("tokens", "{:,}", 1), "arm": ("arm", "{}", 1), "ms": ("seconds", "{:.2f}", 1e3),
        "over SDPA": ("over_sdpa", "{:.2f}×", 1),
        "of what FLOPs allow": ("share_reached", "{:.0%}", 1)}),
}  # fmt: skip
"""By section: the title, the key of its rows, and their columns; that of the graphs is a goal."""
TABLES["prefill-1m"] = TABLES["prefill"]


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """The goals, then a table of each section that has figures."""
    made = [_goals(result), _states(result)]
    made += [table(name, one) for name, one in result["sections"].items() if name in TABLES]
    return [one for one in made if one.rows]


def markdown(result: dict[str, Any], source: str) -> str:
    """The page; `source` names the JSON it came from."""
    gpu, about = result["provenance"].get("gpu"), list[str]()
    if gpu is not None:
        size = f"{gpu['memory'] / 2**30:.0f} GiB"
        about = ["", f"Driver {gpu['driver']}, CUDA {gpu['cuda']}, {size}."]
    title = f"GPU: {result['model']}"
    return "\n".join([*head(result, source, title), *about, *sections(tables(result))]) + "\n"


def table(name: str, found: Mapping[str, Any]) -> ReportTable:
    """The table of a section; columns without a figure are left out."""
    title, key, columns = TABLES[name]
    flat = [row for one in found.get(key, []) for row in _flat(one)]
    rows = [row for row in flat if "missing" not in row]
    lines = [[_text(row, *column) for column in columns.values()] for row in rows]
    used = [at for at in range(len(columns)) if any(line[at] != "–" for line in lines)]
    missing = [f"{_label(row)}: {row['missing']}" for row in flat if "missing" in row]
    remarks = [found["note"]] if found.get("note") else []
    remarks += [f"Left out: {'; '.join(missing)}."] if missing else []
    heads = list(columns)
    kept = [[line[at] for at in used] for line in lines]
    return ReportTable(title, [heads[at] for at in used], kept, " ".join(remarks))


def _flat(row: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """A row as it is, or one row for each of its arms or waves, with its labels."""
    labels = {name: one for name, one in row.items() if not isinstance(one, dict | list)}
    if "checks" in row:
        yield labels | _kernel(row)
    elif isinstance(row.get("arms"), dict):
        yield from ({**labels, "arm": name, **one} for name, one in row["arms"].items())
    elif "waves" in row:
        yield from ({**labels, "wave": n, **one} for n, one in enumerate(row["waves"], 1))
        if "missing" in row:
            yield dict(row)
    else:
        yield {**row, **labels}


def _kernel(row: Mapping[str, Any]) -> dict[str, Any]:
    """A cell of block attention beside the quickest of torch's own."""
    errors = [check["error"] for check in row["checks"]]
    error = "–" if None in errors else f"{max(errors):.1e}"
    arms = dict(row.get("arms", {}))
    ours = arms.pop("sooner", {})
    timed = {arm["seconds"]: name for name, arm in arms.items() if "seconds" in arm}
    best = f"{timed[min(timed)]} {1e6 * min(timed):.1f}" if timed else "–"
    return {"error": error if row["ok"] else f"{error} red", "best": best, **ours}


def _text(row: Mapping[str, Any], key: str, form: str, factor: float) -> str:
    value = row.get(key)
    if key == "first" and value is None:
        return "none"
    if value is None:
        return "–"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "–"
    return form.format(value if factor == 1 else factor * value)


def _label(row: Mapping[str, Any]) -> str:
    parts = [str(row[key]) for key in ("model", "context", "rows", "arm", "block") if key in row]
    return " ".join(parts)


def _goals(result: dict[str, Any]) -> ReportTable:
    rows = [
        [
            one["goal"],
            f"{'≤' if one['at_most'] else '≥'} {one['wanted']:g}",
            cell(one["reached"], "{:.2f}"),
            one["verdict"] + (f": {one['reason']}" if one.get("reason") else ""),
        ]
        for one in result["goals"]
    ]
    return ReportTable("Goals", ["goal", "wanted", "reached", "verdict"], rows)


def _states(result: dict[str, Any]) -> ReportTable:
    copied = result["bandwidth"]
    rows = []
    for name, one in result["sections"].items():
        why = one.get("error") or one.get("reason") or ", ".join(one.get("cut", []))
        peak = one.get("peak_bytes")
        seconds = cell(one.get("section_seconds"), "{:.0f}")
        size = cell(peak and peak / 2**30, "{:.1f}")
        rows.append([name, one.get("status", "running"), seconds, size, why])
    rate, share = copied.get("bytes_per_second"), copied.get("share_of_data_sheet")
    remark = f"A copy reads and writes {cell(rate and rate / 1e9, '{:.0f}')} GB/s"
    remark += f", {share:.0%} of the data sheet's." if share else "."
    return ReportTable(
        "Sections", ["section", "status", "seconds", "peak GiB", "why"], rows, remark
    )
