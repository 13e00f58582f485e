"""The tables of a documents result, numbered as the HSD paper's, for the terminal and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..pages import ReportTable, cell, head, sections
from .judging import aal, rows_of, speedup

Figures = dict[str, Any]
ABOUT = (
    "> **Replay.** The target says the page's text whatever it sees; real are the "
    "pages, the OCR that drafts them, the method and the work of its forwards. A tolerance below 1 "
    "can't be judged so: the target is certain of every token."
)
CLOCKS = {"cpu": "this CPU", "priced": "priced"}


def tables(result: Figures) -> list[ReportTable]:
    """Gate and goals, then the paper's tables as far as the result has readings for them."""
    readings, seed = result["readings"], result["settings"]["seed"]
    found = [_gate(result), _goals(result), _calibration(readings, seed), _kinds(readings, seed)]
    found += [_latency(readings, seed), _accuracy(readings), _components(readings, seed)]
    found += [_curve(readings, seed), _pruned(readings, seed), _boxes(readings, seed)]
    found += [_epsilon(result.get("epsilon"))]
    return [one for one in found if one.rows]


def markdown(result: Figures, source: str) -> str:
    """The page; `source` names the JSON that it came from."""
    lines = [*head(result, source, "Documents: drafts by real OCR"), "", ABOUT, ""]
    lines += [f"Pages: {result['wear']}. Prices: {result['priced_by']}."]
    if any(not one["passed"] for one in result["gate"]):
        lines += ["", "**The gate is not passed: these pages may not judge the method.**"]
    return "\n".join([*lines, *sections(tables(result))]) + "\n"


def faults(result: Figures) -> list[str]:
    """Texts that are not the page's."""
    return sorted(
        f"{one['page']}, {one['drafter']}: {one['method']} does not say the page's text"
        for one in result["readings"]
        if not one["is_exact"]
    )


def _rate(one: Figures, form: str = "{:.2f}") -> str:
    if one["value"] is None:
        return "–"
    if one["interval"] is None:
        return form.format(one["value"])
    low, high = (form.format(side) for side in one["interval"])
    return f"{form.format(one['value'])} [{low}, {high}]"


def _gate(result: Figures) -> ReportTable:
    rows = [
        [one["gate"], one["wanted"], _rate(one), "passed" if one["passed"] else "**not passed**"]
        for one in result["gate"]
    ]
    remark = "" if len(rows) > 1 else "The gate's own arms are in [documents.md](documents.md)."
    return ReportTable("Gate: AAL", ["arm and draft", "wanted", "reached", ""], rows, remark)


def _goals(result: Figures) -> ReportTable:
    rows = [
        [one["goal"], f"{one['wanted']:g}", _rate(one), "met" if one["met"] else "**missed**"]
        for one in result["goals"]
    ]
    remark = "Fixed before any result; the lower bound of the interval counts."
    return ReportTable("Goals", ["goal", "at least", "reached", ""], rows, remark)


def _calibration(readings: Sequence[Figures], seed: int) -> ReportTable:
    found = rows_of(readings, part="calibration")
    wears = dict.fromkeys(one["wear"] for one in found)
    rows = [
        [
            wear,
            *(
                _rate(aal(rows_of(found, wear=wear, method=name), seed))
                for name in ("paper-literal", "hsd-page")
            ),
            cell(_mean(rows_of(found, wear=wear), "draft_quality"), "{:.3f}"),
        ]
        for wear in wears
    ]
    return ReportTable(
        "Calibration: AAL", ["wear", "paper-literal", "hsd-page", "words right"], rows
    )


def _kinds(readings: Sequence[Figures], seed: int) -> ReportTable:
    """Table 1: by kind of page, of the arms with both stages and with the page alone."""
    rows = []
    for part, clock in (("counts", "priced"), ("clocks", "cpu")):
        found = rows_of(readings, part=part, drafter="ocr")
        for name in ("hsd-page", "hsd", "hsd-unsure"):
            for kind in ("all", *dict.fromkeys(one["kind"] for one in found)):
                own = rows_of(found, method=name) if kind == "all" else rows_of(
                    found, method=name, kind=kind
                )  # fmt: skip
                if own:
                    rows.append([name, CLOCKS[clock], kind, _rate(aal(own, seed)),
                                 *_speeds(own, found, clock, seed)])  # fmt: skip
    heads = ["arm", "clock", "pages", "AAL", "SR decode", "SR e2e"]
    return ReportTable(
        "Table 1: acceleration by kind of page", heads, rows, "The drafter counts in both."
    )


def _epsilon(told: Figures | None) -> ReportTable:
    """How often a trained reader says otherwise of a crop than of the page."""
    heads = ["reader", "pages", "words a page", "tokens a page", "regions", "ε", "page wrong",
             "crops wrong", "run away"]  # fmt: skip
    rows = []
    if told is not None:
        share = {name: f"{100 * told[name]:.1f} %"
                 for name in ("page_wrong", "crop_wrong", "runaway")}  # fmt: skip
        low, high = (f"{100 * side:.1f}" for side in told["interval"])
        # Before there was a reader, results told the miniature's words alone, as tokens.
        told = told if "words" in told else {
            **told, "reader": "miniature", "words": told["tokens"], "tokens": None
        }  # fmt: skip
        rows = [[told["reader"], str(told["pages"]), cell(told["words"], "{:.0f}"),
                 cell(told["tokens"], "{:.0f}"), str(told["regions"]),
                 f"{100 * told['value']:.1f} % [{low}, {high}]", *share.values()]]  # fmt: skip
    remark = (
        "Pages whole and cut into their regions, read greedily by HF's `generate`. ε: words to "
        "edit between crops and page, of the page's; *wrong*: the same against the truth. The "
        "*reader* was trained for this, on no page beside a crop of it; the *miniature* is the "
        "bundled one. Their pages are shorter than those above."
    )
    return ReportTable("ε of a trained reader", heads, rows, remark)


def _speeds(
    own: Sequence[Figures],
    found: Sequence[Figures],
    clock: str,
    seed: int,
    plain: str = "plain",
) -> list[str]:
    """Decoding and end-to-end speed-up over plain decoding of the same pages, by one clock."""
    base, is_cpu = rows_of(found, method=plain), clock == "cpu"
    return [
        _rate(speedup(own, base, f"{clock}_{what}", seed, drafter=is_cpu))
        for what in ("decode", "e2e")
    ]


def _latency(readings: Sequence[Figures], seed: int) -> ReportTable:
    """Table 5."""
    of_page = rows_of(readings, drafter="ocr", method="hsd-page")
    found = rows_of(of_page, part="counts") or rows_of(of_page, part="clocks")
    rows = []
    if found:
        seconds = _mean(found, "draft_seconds")
        rows = [["ocr, this CPU", cell(seconds, "{:.2f} s"), _rate(aal(found, seed))]]
        rows.append(["the paper's, A100", "1.99 s", "4.98"])
    return ReportTable("Table 5: latency of drafts", ["drafter", "a page", "AAL"], rows)


def _accuracy(readings: Sequence[Figures]) -> ReportTable:
    """Table 7: words right (F1), of the draft, stage 1 alone, and both stages."""
    rows = []
    for part in ("counts", "clocks"):
        found = rows_of(readings, part=part, drafter="ocr", method="hsd")
        if found:
            right = _mean([{"right": float(one["is_exact"])} for one in found], "right")
            pages = f"{len(found)} {'counted' if part == 'counts' else 'timed'}"
            rows += [
                [pages, "draft", cell(_mean(found, "draft_quality"), "{:.3f}")],
                [pages, "stage 1 only", cell(_mean(found, "stage_quality"), "{:.3f}")],
                [pages, "both stages: pages that are the target's", cell(right, "{:.3f}")],
            ]
    return ReportTable("Table 7: accuracy", ["pages", "text", "words right"], rows)


def _components(readings: Sequence[Figures], seed: int) -> ReportTable:
    """Table 8."""
    rows = []
    for part, clock in (("counts", "priced"), ("clocks", "cpu")):
        found = rows_of(readings, part=part, drafter="ocr")
        for name in ("paper-literal", "paper-literal-both", "hsd-page", "hsd", "hsd-unsure"):
            own = rows_of(found, method=name)
            if own:
                forwards = (_mean(own, "steps"), _mean(own, "region_forwards"))
                rows.append(
                    [name, CLOCKS[clock], _rate(aal(own, seed)),
                     *(cell(one, "{:.0f}") for one in forwards), *_speeds(own, found, clock, seed)]
                )  # fmt: skip
    heads = ["arm", "clock", "AAL", "page forwards", "region forwards", "SR decode", "SR e2e"]
    remark = "The paper's AAL, with the page alone 3.49, with both stages 3.87 (tau = 1)."
    return ReportTable("Table 8: components", heads, rows, remark)


def _curve(readings: Sequence[Figures], seed: int) -> ReportTable:
    """Figure 3 as a table: by draft quality; and by epsilon."""
    found = rows_of(readings, part="curve")
    rows = []
    for key in dict.fromkeys((one["wear"], one["drafter"], one["epsilon"]) for one in found):
        wear, drafter, epsilon = key
        these = rows_of(found, wear=wear, drafter=drafter, epsilon=epsilon)
        page, both = (rows_of(these, method=name) for name in ("hsd-page", "hsd"))
        rows.append(
            [wear, drafter, f"{epsilon:.0%}", cell(_mean(these, "draft_quality"), "{:.3f}"),
             _rate(aal(page, seed)), _rate(aal(both, seed)),
             _rate(speedup(both, page, "priced_decode", seed))]
        )  # fmt: skip
    heads = ["wear", "draft", "ε", "words right", "AAL, page", "AAL, both", "both over page"]
    return ReportTable("Figure 3: by draft quality", heads, rows, "Priced decoding.")


def _pruned(readings: Sequence[Figures], seed: int) -> ReportTable:
    """Table 6: HSD on a target with fewer visual tokens, over the same target."""
    rows = []
    found = rows_of(readings, part="clocks")
    own = rows_of(found, method="hsd-pruned")
    for clock in CLOCKS if own else ():
        speeds = _speeds(own, found, clock, seed, "plain-pruned")
        rows.append([CLOCKS[clock], _rate(aal(own, seed)), *speeds])
    return ReportTable(
        "Table 6: with fewer visual tokens", ["clock", "AAL", "SR decode", "SR e2e"], rows
    )


def _boxes(readings: Sequence[Figures], seed: int) -> ReportTable:
    found = rows_of(readings, part="boxes")
    names = dict.fromkeys(one["drafter"] for one in found)
    rows = [[name, _rate(aal(rows_of(found, drafter=name), seed))] for name in names]
    return ReportTable("Boxes: DocJSON drafts, AAL", ["pixels off", "hsd-page"], rows)


def _mean(rows: Sequence[Figures], name: str) -> float | None:
    known = [one[name] for one in rows if one[name] is not None]
    return sum(known) / len(known) if known else None
