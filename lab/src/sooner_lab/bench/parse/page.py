"""The page of `sooner bench parse`: HSD's tables 1, 5, 7 and 8, whole documents, full batches."""

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
SCORES: Columns = (
    ("method", "text of", "{}"), ("edit_distance", "edit distance ↓", "{:.4f}"),
    ("words", "words ↑", "{:.2%}"), ("teds", "TEDS ↑", "{:.4f}"), ("bleu", "BLEU ↑", "{:.4f}"),
    ("meteor", "METEOR ↑", "{:.4f}"),
)  # fmt: skip
QUALITY: Columns = (
    (lambda row: row["kind"] if row["level"] in (0.0, 1.0) else f"{row['kind']} {row['level']:g}",
     "draft", "{}"),
    ("arm", "arm", "{}"), ("quality", "draft's score", "{:.3f}"), ("aal", "AAL", "{:.2f}"),
    ("decode_speedup", "decode without drafting", "{:.2f}×"),
    ("drafted_speedup", "decode (eq. 12)", "{:.2f}×"), ("e2e_speedup", "e2e (eq. 13)", "{:.2f}×"),
    ("parity", "parity", "{}"),
)  # fmt: skip
DOCUMENT: Columns = (
    ("document", "document", "{}"), ("method", "arm", "{}"), ("drafter", "drafter", "{}"),
    ("counted", "pages", "{}"), ("identical", "identical", "{}"),
    ("plain_seconds", "plain, s", "{:.1f}"), ("seconds", "arm, s", "{:.1f}"),
    ("speedup", "file to Markdown", "{:.2f}×"), ("aal", "AAL", "{:.2f}"),
    (lambda row: row["spent"].get("drafter", 0.0), "drafter, s a page", "{:.2f}"),
    (lambda row: row["spent"].get("wait", 0.0), "wait, s a page", "{:.2f}"),
)  # fmt: skip
CLIENTS: Columns = (
    (lambda row: row["clients"] or "one by one", "under way", "{}"),
    ("method", "arm", "{}"), ("pages_per_second", "pages a second", "{:.3f}"),
    ("over_plain", "over plain", "{:.2f}×"), ("cpu_over_plain", "by CPU time", "{:.2f}×"),
    ("forwards_a_page", "forwards a page", "{:.0f}"),
    ("rows_a_round", "rows a round", "{:.1f}"), ("identical", "identical", "{}"),
)  # fmt: skip
EXACT: Columns = (
    ("method", "arm", "{}"), ("mode", "mode", "{}"), ("pages", "pages", "{}"),
    ("identical", "identical", "{}"),
    (lambda row: _pages(row["ties"]) if row["mode"] == "exact" else None, "ties", "{}"),
    (lambda row: _pages(row["bugs"]) if row["mode"] == "exact" else None, "bugs", "{}"),
    ("aal", "AAL", "{:.2f}"), ("forwards", "forwards", "{}"),
)  # fmt: skip


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
        "front of it, hidden behind nothing (eq. 13): the documents below hide it. *AAL* counts "
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
    kinds = arms[0]["by_kind"]
    heads = ["arm", "decode without drafting", "decode (eq. 12)", "e2e (eq. 13)"]
    heads += [f"{kind['kind']} ({kind['pages']})" for kind in kinds]
    rows = []
    for row in arms:
        speeds = [_with_interval(row, key) for key in SPEEDS]
        parts = [
            " / ".join(cell(part.get(key), "{:.2f}×") for key in SPEEDS) for part in row["by_kind"]
        ]
        rows.append([row["method"], *speeds, *parts])
    remark = (
        "With 95 % intervals over pages. By what is on a page: *decode without drafting* / *decode "
        "(eq. 12)* / *e2e (eq. 13)*; in brackets how many pages hold it."
    )
    return [ReportTable("By kind of page (table 1)", heads, rows, remark)]


def _with_interval(row: Data, key: str) -> str:
    span = row.get(f"{key}_interval")
    text = cell(row.get(key), "{:.2f}×")
    return text if span is None else f"{text} ({span[0]:.2f} to {span[1]:.2f})"


def _ablation(result: Data) -> list[Data]:
    known = {row["method"]: row for row in result.get("arms") or []}
    return [known[name] | {"stages": label} for name, label in ABLATION.items() if name in known]


def _accuracy(result: Data) -> str:
    accuracy = result["accuracy"]
    remark = (
        f"Means over the {accuracy['pages']} pages of the part *{accuracy['of']}*, "
        "against the truth."
    )
    for row in accuracy["words_lost"]:
        low, high = row["interval"]
        remark += (
            f" `{row['method']}` loses {row['points']:.2f} points of word accuracy "
            f"({low:.2f} to {high:.2f})."
        )
    return remark + (
        f" Not measured: {'; '.join(accuracy['missing'])}." if accuracy["missing"] else ""
    )


def _documents(result: Data) -> str:
    remark = (
        "A PDF made in the run, by the same job as `sooner parse`: from the file to its written "
        "Markdown and JSON, models loaded before. The drafter works on the next page meanwhile; "
        "*drafter* is its own time a page, *wait* what is left of it to be waited for. *AAL* is "
        "that of the pages' passes, all steps of all pages together, as above."
    )
    for row in result["document"]:
        name = f" {row['document']}, {row['method']}: "
        if row["left_out"]:
            remark += f"{name}not counted (no end) page {_pages(row['left_out'])}."
        remark += f"{name}{'; '.join(row['notes'])}." if row["notes"] else ""
    cores = result.get("cores") or {}
    if cores.get("speedup"):
        remark += (
            f" The drafter has a core of its own; plain decoding with {cores['cores']} threads "
            f"instead of {cores['threads']} is {cores['speedup']:.2f} times as fast."
        )
    return remark


def _exactness(result: Data) -> str:
    part = result["exactness"]
    exact = [f"`{row['method']}`" for row in part["rows"] if row["mode"] == "exact"]
    remark = (
        "Token ids against plain decoding, which reads pages in batches here (rows of one size "
        "don't know of each other); where they differ, against plain decoding of that page alone. "
        f"The exact arms that were compared on these pages: {', '.join(exact)}; others on those of "
        "the part *arms* only."
    )
    if part["truncated"]:
        remark += f" Pages without an end, compared as far as they go: {_pages(part['truncated'])}."
    return remark


def _drafts(result: Data) -> list[Data]:
    quality = result.get("quality") or {"rows": [], "garbage": []}
    return [*quality["rows"], *quality["garbage"]]


def _overhead(result: Data) -> list[ReportTable]:
    overhead = result.get("overhead") or {}
    if "share" not in overhead:
        return []
    milliseconds = {
        "index_seconds": "index, once a page", "draft_step_seconds": "alignment and tree, a step",
        "mask_step_seconds": "mask, a step", "step_seconds": "a verifying step in all",
        "plain_step_seconds": "a plain step's forward",
    }  # fmt: skip
    rows = [["draft tokens", f"{overhead['draft_tokens']} in {overhead['regions']} regions"]]
    rows += [
        [name, "–" if overhead[key] is None else f"{1000 * overhead[key]:.2f} ms"]
        for key, name in milliseconds.items()
    ]
    rows += [
        ["share of a verifying step", f"{overhead['share']:.1%}"],
        ["AAL", f"{overhead['aal']:.2f}"],
    ]
    return [ReportTable("Beside the model", ["", ""], rows)]


def _clients(result: Data) -> str:
    part = result["clients"]
    worst = sorted({row["verdict"] for row in part["rows"]})
    return (
        f"The same {part['pages']} pages in each row. *one by one* is `PageParser`, a page at a "
        "time; else so many pages are under way over one continuous engine (`ConcurrentParser`), "
        "whose rounds they share: *forwards* are a page's own, *rows* those of a round. Over plain "
        "decoding with as many under way, medians of paired repeats. Drafts are made beforehand "
        "and are in no figure here (those of `hsd-page-garbage` are words that no page has): OCR "
        f"takes {part['draft_seconds']:.2f} s a page of a core beside the target. Parity with "
        f"plain decoding of each page alone: {', '.join(worst)}."
    )


def _fast(result: Data) -> list[Data]:
    return [row for row in (result.get("arms") or [])[1:] if row.get("decode_speedup")]


def _by_kind(result: Data) -> list[Data]:
    """Speed-up by kind of page, of the arms with drafts."""
    return [
        {**part, "method": row["method"]}
        for row in _fast(result)
        if row["method"] not in ("hf", "hf-prompt-lookup")
        for part in row["by_kind"]
        if part["pages"]
    ]


PAGE = Page(
    lambda result: f"Parsing: {result['model']}",
    (
        Table("Arms", "arms", ARMS, _arms),
        _kinds,
        Table("Ablation (table 8)", _ablation, (("stages", "", "{}"), *ARMS[4:-1])),
        Table("Accuracy (table 7)", "accuracy.rows", SCORES, _accuracy),
        Table("Documents, end to end", "document", DOCUMENT, _documents),
        Table("Exactness on held-out pages", "exactness.rows", EXACT, _exactness),
        Table(
            "Draft quality (figure 3)", _drafts, QUALITY,
            "*truth* is a draft without a fault, *ocr* the drafter as it is; *image* is what OCR "
            "makes of a worse copy, *letters* the share that is read wrongly, *boxes* by how much "
            "of their sides the edges are moved, *garbage* words that no page has. The score is "
            "the F1 of the draft's words, their order aside. The model sees the page as it is; eq. "
            "12 and e2e have the drafter's time in them.",
        ),
        _overhead,
        Table("Full batches", "clients.rows", CLIENTS, _clients),
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
            "The same by what pages hold (table 1)",
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
    retired=("quality", "overhead", "cores"),
)  # fmt: skip
