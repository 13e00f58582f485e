"""The tables of a parse result, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, pictures, sections
from .figures import SPEEDS

Data = dict[str, Any]
FIGURES = {
    "arms": "Speed-up over plain decoding by arm, with 95 % intervals over pages",
    "kinds": "The same by what pages hold (table 1)",
    "quality": "Acceptance and speed-up by the quality of drafts (figure 3)",
}
ARMS = (
    ("mode", "mode", "{}"), ("pages", "pages", "{}"), ("tokens", "tokens", "{}"),
    ("forwards", "forwards a page", "{:.0f}"), ("region_forwards", "of them stage 1", "{:.0f}"),
    ("tokens_a_forward", "tokens a forward", "{:.2f}"), ("aal", "AAL", "{:.2f}"),
    ("path_rate", "of the path", "{:.0%}"), ("aal_regions", "AAL, regions", "{:.2f}"),
    ("decode_speedup", "decode without drafting", "{:.2f}×"),
    ("drafted_speedup", "decode (eq. 12)", "{:.2f}×"), ("e2e_speedup", "e2e (eq. 13)", "{:.2f}×"),
    ("seconds_a_page", "s a page", "{:.2f}"), ("draft_seconds_a_page", "of it drafts", "{:.2f}"),
    ("parity", "parity", "{}"),
)  # fmt: skip
EFFORT = ARMS[3:-1]
"""The columns of the ablation."""
ABLATION = {
    "hsd-page": "page alone, τ = 1", "hsd": "both stages, τ = 1",
    "hsd-page-relaxed": "page alone, τ = 0.75", "hsd-relaxed": "both stages, τ = 0.75",
}  # fmt: skip
SCORES = (
    ("edit_distance", "edit distance ↓", "{:.4f}"), ("words", "words ↑", "{:.2%}"),
    ("teds", "TEDS ↑", "{:.4f}"), ("bleu", "BLEU ↑", "{:.4f}"), ("meteor", "METEOR ↑", "{:.4f}"),
)  # fmt: skip
QUALITY = (
    ("arm", "arm", "{}"), ("quality", "draft's score", "{:.3f}"), ("aal", "AAL", "{:.2f}"),
    ("decode_speedup", "decode without drafting", "{:.2f}×"),
    ("drafted_speedup", "decode (eq. 12)", "{:.2f}×"), ("e2e_speedup", "e2e (eq. 13)", "{:.2f}×"),
    ("parity", "parity", "{}"),
)  # fmt: skip
DOCUMENT = (
    ("document", "document", "{}"), ("method", "arm", "{}"), ("drafter", "drafter", "{}"),
    ("counted", "pages", "{}"), ("identical", "identical", "{}"),
    ("plain_seconds", "plain, s", "{:.1f}"), ("seconds", "arm, s", "{:.1f}"),
    ("speedup", "file to Markdown", "{:.2f}×"),
    ("aal", "AAL", "{:.2f}"),
)  # fmt: skip


CLIENTS = (
    ("method", "arm", "{}"), ("pages_per_second", "pages a second", "{:.3f}"),
    ("over_plain", "over plain", "{:.2f}×"), ("cpu_over_plain", "by CPU time", "{:.2f}×"),
    ("forwards_a_page", "forwards a page", "{:.0f}"),
    ("rows_a_round", "rows a round", "{:.1f}"), ("identical", "identical", "{}"),
)  # fmt: skip


def tables(result: Data) -> list[ReportTable]:
    """Every table that the result has figures for, the goals first."""
    found = [_goals(result["goals"])] if result.get("goals") else []
    if arms := result.get("arms"):
        rows = result.get("pages") or []
        found += [_arms(arms, rows), _intervals(arms), _kinds(arms), *_ablation(arms)]
    if told := result.get("accuracy"):
        found.append(_accuracy(told))
    if rows := result.get("document"):
        found.append(_documents(rows, result.get("cores")))
    if told := result.get("exactness"):
        found.append(_exactness(told))
    if told := result.get("quality"):
        found.append(_quality(told))
    if told := result.get("overhead"):
        found += _overhead(told)
    if told := result.get("clients"):
        found.append(_clients(told))
    return found


def markdown(result: Data, source: str) -> str:
    """The page of one result."""
    from .plots import drawable

    captions = {name: text for name, text in FIGURES.items() if name in drawable(result)}
    lines = head(result, source, f"Parsing: {result['model']}")
    lines += sections(tables(result)) + pictures(captions, source)
    return "\n".join(lines) + "\n"


def _goals(goals: list[Data]) -> ReportTable:
    rows = []
    for one in goals:
        side = "at most" if one.get("at_most") else "at least"
        wanted = "–" if one["wanted"] is None else f"{side} {one['wanted']:.3g}"
        met = {None: "–", True: "yes", False: "no"}[one["met"]]
        key = f"`{one['key']}`" if one.get("key") else "–"
        rows.append([one["goal"], wanted, f"{one['reached']:.3g}", met, key])
    remark = "*key* is where in the JSON the figure stands; rows of a list go by their names."
    return ReportTable("Goals", ["figure", "wanted", "reached", "met", "key"], rows, remark)


def _arms(arms: list[Data], pages: list[Data]) -> ReportTable:
    rows = [[row["method"], *cells(row, ARMS)] for row in arms]
    remark = (
        "Ratios of totals over pages, all arms on a page before the next one begins. *decode "
        "without drafting* compares tokens a second in decoding loops alone (stage 1's included); "
        "the paper's ratio (eq. 12) adds all that is made for the draft's sake: OCR, stage 1 with "
        "its crops' prefill, a draft's prefill. *e2e* is from picture to Markdown with the OCR in "
        "front of it, hidden behind nothing (eq. 13): the documents below hide it. *AAL* counts "
        "accepted draft tokens a step of the page's pass (eq. 14), *of the path* their share of "
        "the deepest path that each tree offered; *tokens a forward* counts all forwards, stage "
        "1's and prefills too, and so compares arms with and without stage 1. *of it drafts* are "
        "seconds that making drafts takes (table 5)." + _compared(arms, pages) + _left_out(arms)
    )
    return ReportTable("Arms", ["arm", *heads_of(ARMS)], rows, remark)


def _compared(arms: list[Data], pages: list[Data]) -> str:
    """Which arms are exact, and on how many pages they were."""
    found: dict[tuple[int, int], list[str]] = {}
    for row in arms[1:]:
        if row["mode"] == "exact":
            found.setdefault((row["identical"], row["compared"]), []).append(f"`{row['method']}`")
    listed = "; ".join(
        f"{', '.join(names)}: {same} of {count}" for (same, count), names in found.items()
    )
    numbers = sorted(page["number"] for page in pages)
    where = f" of this part (numbers {numbers[0]} to {numbers[-1]})" if numbers else ""
    return (
        f" Pages{where} on which exact arms said plain decoding's ids: {listed}." if found else ""
    )


def _intervals(arms: list[Data]) -> ReportTable:
    """How much the pages differ."""
    rows = [
        [row["method"], *(_span(row.get(f"{name}_interval")) for name in SPEEDS)]
        for row in arms[1:]
    ]
    heads = ["arm", "decode without drafting", "decode (eq. 12)", "e2e (eq. 13)"]
    return ReportTable("95 % intervals over pages", heads, rows)


def _span(span: list[float] | None) -> str:
    return "–" if span is None else f"{span[0]:.2f}× to {span[1]:.2f}×"


def _left_out(arms: list[Data]) -> str:
    """Pages that count in no speed."""
    found = {row["method"]: row["truncated"] for row in arms if row["truncated"]}
    if not found:
        return ""
    listed = "; ".join(f"{name}: {', '.join(map(str, pages))}" for name, pages in found.items())
    return f" Pages that never ended count in no figure about speed: {listed}."


def _kinds(arms: list[Data]) -> ReportTable:
    """Table 1: e2e speed-up and AAL by kind of page."""
    kinds = arms[0]["by_kind"]
    heads = ["arm", "AAL", "decode without drafting", "decode (eq. 12)", "e2e (eq. 13)"]
    heads += [f"{one['kind']} ({one['pages']})" for one in kinds]
    rows = []
    for row in arms:
        line = [row["method"], cell(row["aal"], "{:.2f}")]
        line += [cell(row.get(key), "{:.2f}×") for key in SPEEDS]
        for one in row["by_kind"]:
            speeds = (cell(one.get(key), "{:.2f}×") for key in SPEEDS)
            line.append(" / ".join(speeds))
        rows.append(line)
    remark = (
        "By what is on a page: *decode without drafting* / *decode (eq. 12)* / *e2e (eq. 13)*; in "
        "brackets how many pages hold it."
    )
    return ReportTable("By kind of page (table 1)", heads, rows, remark)


def _ablation(arms: list[Data]) -> list[ReportTable]:
    """Table 8: what each stage and the tolerance add."""
    known = {row["method"]: row for row in arms}
    rows = [
        [label, *cells(known[name], EFFORT)] for name, label in ABLATION.items()
        if name in known
    ]  # fmt: skip
    return [ReportTable("Ablation (table 8)", ["", *heads_of(EFFORT)], rows)] if rows else []


def _accuracy(told: Data) -> ReportTable:
    """Table 7."""
    rows = [[row["method"], *cells(row, SCORES)] for row in told["rows"]]
    remark = f"Means over the {told['pages']} pages of the part *{told['of']}*, against the truth."
    for one in told["words_lost"]:
        low, high = one["interval"]
        remark += (
            f" `{one['method']}` loses {one['points']:.2f} points of word accuracy "
            f"({low:.2f} to {high:.2f})."
        )
    if told["missing"]:
        remark += f" Not measured: {'; '.join(told['missing'])}."
    return ReportTable("Accuracy (table 7)", ["text of", *heads_of(SCORES)], rows, remark)


def _documents(rows: list[Data], cores: Data | None) -> ReportTable:
    body = []
    for row in rows:
        hidden = row["spent"].get("drafter", 0.0), row["spent"].get("wait", 0.0)
        shares = [f"{value:.2f}" for value in hidden]
        body.append([*cells(row, DOCUMENT), *shares])
    remark = (
        "A PDF made in the run, by the same job as `sooner parse`: from the file to its written "
        "Markdown and JSON, models loaded before. The drafter works on the next page meanwhile; "
        "*drafter* is its own time a page, *wait* what is left of it to be waited for. *AAL* is "
        "that of the pages' passes, all steps of all pages together, as above."
    )
    for row in rows:
        if row["left_out"]:
            listed = ", ".join(map(str, row["left_out"]))
            remark += f" {row['document']}, {row['method']}: not counted (no end) page {listed}."
        if row["notes"]:
            remark += f" {row['document']}, {row['method']}: {'; '.join(row['notes'])}."
    if cores and cores["speedup"]:
        remark += (
            f" The drafter has a core of its own; plain decoding with {cores['cores']} threads "
            f"instead of {cores['threads']} is {cores['speedup']:.2f} times as fast."
        )
    heads = [*heads_of(DOCUMENT), "drafter, s a page", "wait, s a page"]
    return ReportTable("Documents, end to end", heads, body, remark)


def _exactness(told: Data) -> ReportTable:
    rows = []
    for row in told["rows"]:
        line = [row["method"], row["mode"], str(row["pages"]), str(row["identical"])]
        line += [_numbers(row[key]) if row["mode"] == "exact" else "–" for key in ("ties", "bugs")]
        rows.append([*line, cell(row["aal"], "{:.2f}"), str(row["forwards"])])
    exact = [f"`{row['method']}`" for row in told["rows"] if row["mode"] == "exact"]
    remark = (
        "Token ids against plain decoding, which reads pages in batches here (rows of one size "
        "don't know of each other); where they differ, against plain decoding of that page alone. "
        f"The exact arms that were compared on these pages: {', '.join(exact)}; others on those of "
        "the part *arms* only."
    )
    if told["truncated"]:
        remark += (
            f" Pages without an end, compared as far as they go: {_numbers(told['truncated'])}."
        )
    heads = ["arm", "mode", "pages", "identical", "ties", "bugs", "AAL", "forwards"]
    return ReportTable("Exactness on held-out pages", heads, rows, remark)


def _numbers(pages: list[int]) -> str:
    return ", ".join(map(str, pages)) or "none"


def _quality(told: Data) -> ReportTable:
    rows = [[_condition(row), *cells(row, QUALITY)] for row in [*told["rows"], *told["garbage"]]]
    remark = (
        "*truth* is a draft without a fault, *ocr* the drafter as it is; *image* is what OCR makes "
        "of a worse copy, *letters* the share that is read wrongly, *boxes* by how much of their "
        "sides the edges are moved, *garbage* words that no page has. The score is the F1 of the "
        "draft's words, their order aside. The model sees the page as it is; eq. 12 and e2e have "
        f"the drafter's time in them. {_counted([*told['rows'], *told['garbage']])}"
    )
    return ReportTable("Draft quality (figure 3)", ["draft", *heads_of(QUALITY)], rows, remark)


def _counted(rows: list[Data]) -> str:
    counts = sorted({row["pages"] for row in rows})
    return f"Pages a row: {' to '.join(map(str, counts))}." if counts else ""


def _condition(row: Data) -> str:
    return row["kind"] if row["level"] in (0.0, 1.0) else f"{row['kind']} {row['level']:g}"


def _overhead(told: Data) -> list[ReportTable]:
    if "share" not in told:
        return []
    names = (
        ("draft tokens", f"{told['draft_tokens']} in {told['regions']} regions"),
        ("index, once a page", f"{1000 * told['index_seconds']:.2f} ms"),
        ("alignment and tree, a step", f"{1000 * told['draft_step_seconds']:.2f} ms"),
        ("mask, a step", f"{1000 * told['mask_step_seconds']:.2f} ms"),
        ("a verifying step in all", f"{1000 * told['step_seconds']:.2f} ms"),
        ("a plain step's forward", cell(_ms(told["plain_step_seconds"]), "{:.2f} ms")),
        ("share of a verifying step", f"{told['share']:.1%}"),
        ("AAL", f"{told['aal']:.2f}"),
    )
    rows = [list(line) for line in names]
    return [ReportTable("Beside the model", ["", ""], rows)]


def _clients(told: Data) -> ReportTable:
    rows = []
    for row in told["rows"]:
        count = "one by one" if row["clients"] is None else str(row["clients"])
        rows.append([count, *cells(row, CLIENTS)])
    remark = (
        f"The same {told['pages']} pages in each row. *one by one* is `PageParser`, a page at a "
        "time; else so many pages are under way over one continuous engine (`ConcurrentParser`), "
        "whose rounds they share: *forwards* are a page's own, *rows* those of a round. Over plain "
        "decoding with as many under way, medians of paired repeats. Drafts are made beforehand "
        "and are in no figure here (those of `hsd-page-garbage` are words that no page has): OCR "
        f"takes {told['draft_seconds']:.2f} s a page of a core "
        "beside the target."
    )
    worst = sorted({row["verdict"] for row in told["rows"]})
    remark += f" Parity with plain decoding of each page alone: {', '.join(worst)}."
    return ReportTable("Full batches", ["under way", *heads_of(CLIENTS)], rows, remark)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def heads_of(columns: tuple) -> list[str]:
    """Headings of columns."""
    return [name for _, name, _ in columns]


def cells(row: Data, columns: tuple) -> list[str]:
    """Formatted figures of a row, a cell for each column."""
    return [cell(row.get(key), form) for key, _, form in columns]
