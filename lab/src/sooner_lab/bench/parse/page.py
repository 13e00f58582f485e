"""The page of `sooner bench parse`: HSD's tables 1, 5 and 8."""

from __future__ import annotations

from ..declared import Data
from ..plots import Figure, Panel
from ..render import Columns, Page, ReportTable, Table, cell
from .figures import SPEEDS

ARMS: Columns = (
    ("method", "arm", "{}"), ("mode", "mode", "{}"), ("pages", "pages", "{}"),
    ("tokens", "tokens", "{}"),
    ("forwards", "forwards a page", "{:.0f}"), ("region_forwards", "of them stage 1", "{:.0f}"),
    ("tokens_a_forward", "tokens a forward", "{:.2f}"), ("aal", "AAL", "{:.2f}"),
    ("path_rate", "of the path", "{:.0%}"), ("aal_regions", "AAL, regions", "{:.2f}"),
    ("decode_speedup", "decode without drafting", "{:.2f}×"),
    ("drafted_speedup", "decode (eq. 12)", "{:.2f}×"), ("e2e_speedup", "e2e (eq. 13)", "{:.2f}×"),
    ("seconds_a_page", "s a page", "{:.2f}"), ("draft_seconds_a_page", "of it drafts", "{:.2f}"),
    ("parity", "parity", "{}"),
)  # fmt: skip
ABLATION = {
    "hsd-page": "page alone, τ = 1", "hsd": "both stages, τ = 1",
    "hsd-page-relaxed": "page alone, τ = 0.75", "hsd-relaxed": "both stages, τ = 0.75",
}  # fmt: skip


def _pages(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _arms(result: Data) -> str:
    """How arms were timed, which of them were exact on how many pages, and what was left out."""
    arms = result["arms"]
    by_size: dict[tuple[int, int], list[str]] = {}
    for row in arms[1:]:
        if row["mode"] == "exact":
            by_size.setdefault((row["identical"], row["compared"]), []).append(f"`{row['method']}`")
    listed = "; ".join(
        f"{', '.join(names)}: {same} of {count}" for (same, count), names in by_size.items()
    )
    left_out = "; ".join(
        f"{row['method']}: {_pages(row['truncated'])}" for row in arms if row["truncated"]
    )
    return (
        "Ratios of totals over pages, all arms on a page before the next one begins. *decode "
        "without drafting* compares tokens a second in decoding loops alone (stage 1's included); "
        "the paper's ratio (eq. 12) adds all that is made for the draft's sake: OCR, stage 1 with "
        "its crops' prefill, a draft's prefill. *e2e* is from picture to Markdown with the OCR in "
        "front of it, hidden behind nothing (eq. 13), though `sooner parse` hides it. *AAL* counts "
        "accepted draft tokens a step of the page's pass (eq. 14), *of the path* their share of "
        "the deepest path that each tree offered; *tokens a forward* counts all forwards, stage "
        "1's and prefills too, and so compares arms with and without stage 1. *of it drafts* are "
        "seconds that making drafts takes (table 5)."
        + (f" Pages on which exact arms gave plain decoding's ids: {listed}." if listed else "")
        + (f" Pages that never ended count in no speed: {left_out}." if left_out else "")
    )


def _kinds(result: Data) -> list[ReportTable]:
    """Table 1: speed-ups and their intervals, and by kind of page."""
    arms = result.get("arms") or []
    if not arms:
        return []
    kinds = _kinds_apart(arms[0])
    heads = ["arm", "decode without drafting", "decode (eq. 12)", "e2e (eq. 13)"]
    heads += [f"{kind['kind']} ({kind['pages']})" for kind in kinds]
    rows = []
    for row in arms:
        speeds = [_with_interval(row, key) for key in SPEEDS]
        parts = [
            " / ".join(cell(part.get(key), "{:.2f}×") for key in SPEEDS)
            for part in _kinds_apart(row)
        ]
        rows.append([row["method"], *speeds, *parts])
    remark = "With 95 % intervals over pages."
    if kinds:
        remark += (
            " By what is on a page: *decode without drafting* / *decode (eq. 12)* / *e2e (eq. "
            "13)*; in brackets how many pages have it."
        )
    else:
        remark += " No kind of page stands apart: each is on all pages or on none."
    return [ReportTable("By kind of page (table 1)", heads, rows, remark)]


def _kinds_apart(row: Data) -> list[Data]:
    """Return the kinds that some pages have and others do not: figures of others repeat the row."""
    return [part for part in row["by_kind"] if 0 < part["pages"] < row["pages"]]


def _with_interval(row: Data, key: str) -> str:
    span = row.get(f"{key}_interval")
    text = cell(row.get(key), "{:.2f}×")
    return text if span is None else f"{text} ({span[0]:.2f} to {span[1]:.2f})"


def _ablation(result: Data) -> list[Data]:
    known = {row["method"]: row for row in result.get("arms") or []}
    return [known[name] | {"stages": label} for name, label in ABLATION.items() if name in known]


def _fast(result: Data) -> list[Data]:
    return [row for row in (result.get("arms") or [])[1:] if row.get("decode_speedup")]


def _by_kind(result: Data) -> list[Data]:
    """Speed-up by kind of page, of the arms with drafts."""
    return [
        {**part, "method": row["method"]}
        for row in _fast(result)
        if row["method"] not in ("hf", "hf-prompt-lookup")
        for part in _kinds_apart(row)
    ]


PAGE = Page(
    lambda result: f"Parsing: {result['model']}",
    (
        Table("Arms", "arms", ARMS, _arms),
        _kinds,
        Table("Ablation (table 8)", _ablation, (("stages", "", "{}"), *ARMS[4:-1])),
    ),
    (
        Figure(
            "arms",
            "Speed-up over plain decoding by arm",
            (
                Panel(
                    _fast, "method", ("decode_speedup", "drafted_speedup", "e2e_speedup"), "",
                    "times plain decoding", kind="bar", level=1.0,
                    names={
                        "decode_speedup": "decoding, drafting left out",
                        "drafted_speedup": "decoding (eq. 12)",
                        "e2e_speedup": "picture to Markdown, OCR not hidden (eq. 13)",
                    },
                ),
            ),
            size=(8.5, 4.2),
        ),
        Figure(
            "kinds",
            "Speed-up over plain decoding by kind of page (table 1)",
            (
                Panel(_by_kind, "kind", "drafted_speedup", "", "decoding (eq. 12), times plain",
                      "method", kind="bar", level=1.0),
                Panel(_by_kind, "kind", "e2e_speedup", "",
                      "picture to Markdown (eq. 13), times plain", "method", kind="bar", level=1.0),
            ),
            size=(6.2, 4.2),
        ),
        Figure("quality", "Acceptance and speed-up by the quality of drafts (figure 3)",
               needs="quality.rows"),
    ),
    retired={
        "9362df8": ("accuracy", "quality", "overhead", "cores"),
        "bee124e2": ("document",),
    },
)  # fmt: skip
