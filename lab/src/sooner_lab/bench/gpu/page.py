"""The tables of a GPU result, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..pages import ReportTable, cell, head, sections


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """The goals, then a table of each section that has figures."""
    found = result["sections"]
    made = [_goals(result), _states(result)]
    for name, table in TABLES.items():
        made += [one for one in table(found.get(name, {})) if one.rows]
    return made


def markdown(result: dict[str, Any], source: str) -> str:
    """The page; `source` names the JSON it came from."""
    gpu = result["provenance"].get("gpu")
    about = []
    if gpu is not None:
        about = [
            "",
            f"Driver {gpu['driver']}, CUDA {gpu['cuda']}, {gpu['memory'] / 2**30:.0f} GiB.",
        ]
    title = f"GPU: {result['model']}"
    return "\n".join([*head(result, source, title), *about, *sections(tables(result))]) + "\n"


def _goals(result: dict[str, Any]) -> ReportTable:
    rows = [
        [
            one["goal"],
            f"{'≤' if one['at_most'] else '≥'} {one['wanted']:g}",
            cell(one["reached"], "{:.2f}"),
            f"{one['verdict']}{_because(one)}",
        ]
        for one in result["goals"]
    ]
    return ReportTable("Goals", ["goal", "wanted", "reached", "verdict"], rows)


def _because(one: dict[str, Any]) -> str:
    return f": {one['reason']}" if one.get("reason") else ""


def _states(result: dict[str, Any]) -> ReportTable:
    rate = result["bandwidth"].get("bytes_per_second")
    rows = []
    for name, one in result["sections"].items():
        told = one.get("error") or one.get("reason") or ", ".join(one.get("cut", []))
        rows.append([name, one.get("status", "running"), _seconds(one), told])
    remark = f"A copy reads and writes {cell(rate and rate / 1e9, '{:.0f}')} GB/s."
    return ReportTable("Sections", ["section", "status", "seconds", "why"], rows, remark)


def _seconds(one: dict[str, Any]) -> str:
    return cell(one.get("section_seconds"), "{:.0f}")


def _kernels(found: dict[str, Any]) -> Iterable[ReportTable]:
    cells = found.get("cells", [])
    names = list(dict.fromkeys(name for one in cells for name in one.get("arms", {})))
    rows = []
    for one in cells:
        arms = one.get("arms", {})
        errors = [check["error"] for check in one["checks"]]
        error = None if None in errors else max(errors)
        ours = arms.get("sooner", {})
        rows.append(
            [str(one[key]) for key in ("context", "rows", "block")]
            + [f"{cell(error, '{:.1e}')}{'' if one['ok'] else ' red'}"]
            + [_micro(arms.get(name, {})) for name in names]
            + [cell(ours.get("share_of_copy"), "{:.0%}")]
        )
    heads = ["context", "rows", "block", "error", *(f"{name} µs" for name in names), "of a copy"]
    title = f"Block attention ({found.get('implementation')})"
    yield ReportTable(title, heads, rows, found.get("note", ""))


def _micro(arm: dict[str, Any]) -> str:
    seconds = arm.get("seconds")
    return cell(seconds and 1e6 * seconds, "{:.1f}")


def _step(found: dict[str, Any]) -> Iterable[ReportTable]:
    rows, why = [], []
    for model in found.get("models", []):
        for name, arm in model["arms"].items():
            if "missing" in arm:
                why.append(f"{name} of {model['model']}: {arm['missing']}")
                continue
            share, same = arm["share_of_copy"], {True: "yes", False: "no", None: "–"}
            rows.append(
                [
                    model["model"],
                    name,
                    f"{arm['ms_per_token']:.2f}",
                    " to ".join(f"{1e3 * one:.2f}" for one in arm["interval"]),
                    f"{share:.0%}",
                    same[arm["identical"]],
                ]
            )
    heads = ["model", "arm", "ms/token", "interval", "of a copy", "HF's text"]
    yield ReportTable("Plain step", heads, rows, f"Left out: {'; '.join(why)}." if why else "")


def _verify(found: dict[str, Any]) -> Iterable[ReportTable]:
    rows = [
        [
            str(one["context"]),
            str(one["block"]),
            _milli(one.get("seconds")),
            cell(one.get("over_plain"), "{:.2f}×"),
        ]
        for one in found.get("cells", [])
    ]
    heads = ["context", "block", "ms", "over a plain step"]
    yield ReportTable("Verification", heads, rows, found.get("note", ""))


def _milli(seconds: float | None) -> str:
    return cell(seconds and 1e3 * seconds, "{:.2f}")


def _drafts(found: dict[str, Any]) -> Iterable[ReportTable]:
    rows = [
        [str(one["acceptance"]), one["method"]]
        + [cell(one.get(key), form) for key, form in DRAFT_COLUMNS.items()]
        for one in found.get("rows", [])
    ]
    heads = ["acceptance", "method", "tokens/s", "over plain", "tokens a round", "of theory"]
    steps = found.get("steps", {})
    told = [f"{name} {_milli(one.get('seconds'))} ms" for name, one in steps.items()]
    yield ReportTable("Drafts of set acceptance", heads, rows, f"Forwards: {', '.join(told)}.")


DRAFT_COLUMNS = {
    "tokens_per_second": "{:.1f}",
    "over_plain": "{:.2f}×",
    "tokens_a_round": "{:.2f}",
    "share_of_theory": "{:.0%}",
}


def _rows(found: dict[str, Any]) -> Iterable[ReportTable]:
    rows = [
        [str(one["rows"])]
        + [cell(one[name].get("tokens_per_second"), "{:.0f}") for name in ("plain", "speculative")]
        + [cell(one["speculative"].get("over_plain"), "{:.2f}×")]
        for one in found.get("cells", [])
    ]
    heads = ["rows", "plain tokens/s", "speculative tokens/s", "over plain"]
    yield ReportTable(f"Batches, acceptance {found.get('acceptance')}", heads, rows)


def _prefill(found: dict[str, Any]) -> Iterable[ReportTable]:
    rows = [
        [
            f"{length['tokens']:,}",
            name,
            _milli(arm.get("seconds")),
            cell(arm.get("over_sdpa"), "{:.2f}×"),
            cell(arm.get("share_reached"), "{:.0%}"),
        ]
        for length in found.get("lengths", [])
        for name, arm in length["arms"].items()
    ]
    heads = ["tokens", "arm", "ms", "over SDPA", "of what FLOPs allow"]
    checks = found.get("checks", {})
    told = [f"{name} {cell(one['error'], '{:.1e}')}" for name, one in checks.items()]
    title = f"Sparse prefill, one layer ({found.get('backend')})"
    yield ReportTable(title, heads, rows, f"Errors: {', '.join(told)}.")


def _waits(found: dict[str, Any]) -> Iterable[ReportTable]:
    rows = [
        [one["method"], one["first"] or "none", "; ".join(one["places"])]
        for one in found.get("methods", [])
    ]
    yield ReportTable("Waits of a round", ["method", "first", "all"], rows, found.get("note", ""))


TABLES = {
    "kernels": _kernels,
    "step": _step,
    "verify": _verify,
    "drafts": _drafts,
    "rows": _rows,
    "prefill": _prefill,
    "prefill-1m": _prefill,
    "waits": _waits,
}
"""By section; that of the graphs is a goal."""
