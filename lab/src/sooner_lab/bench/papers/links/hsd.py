"""Hierarchical document speculative decoding."""

from __future__ import annotations

from .kinds import (
    CHECKPOINTS,
    REPLAY,
    TRAINED,
    UNLIKE,
    Comparison,
    Key,
    Links,
    Reason,
)

PAGES = "{settings.pages} pages"
CLOCKED = "{settings.timed} pages by this CPU's clock (the other core at work), 300 visual tokens"
READ = "{arms[method=plain].pages} pages"
COMPONENTS = {
    "page level only": "hsd-page",
    "both stages, τ = 1": "hsd",
    "both stages, τ = 0.75": "hsd-relaxed",
}
LITERAL = {"page level only": "paper-literal", "both stages, τ = 1": "paper-literal-both"}
OUR_WINDOWS = {"page level only": "hsd-page", "both stages, τ = 1": "hsd"}
PRICED = "forwards at assumed prices"
WORN = "the pages' wear was set by what the paper's page level accepts"
CPU_OCR = "the miniature's draft model costs less than OCR does on a CPU core"
STAGE_1 = "reading the crops costs more than it saves the page"
SURE = "the miniature reads its clean pages without error; nothing is left to tolerate"


def _rows(field: str, arms: dict[str, str], at: str = "arms") -> dict[str, str | Key]:
    return {row: f"{at}[method={name}].{field}" for row, name in arms.items()}


def _components() -> list[Comparison]:
    parse = [
        Comparison("table 8", "", column, quantity, "parse", TRAINED, READ,
                   _rows(field, COMPONENTS), why=why)
        for column, quantity, field, why in (
            ("AAL", "aal", "aal", SURE), ("SR decode", "decode", "drafted_speedup", STAGE_1),
            ("SR e2e", "e2e", "e2e_speedup", STAGE_1),
        )
    ]  # fmt: skip
    documents = [
        Comparison("table 8", "", column, quantity, "documents", REPLAY, f"{PAGES}, {whose}",
                   _rows(field, arms, "rates"), why=STAGE_1, only_order=note)
        for arms, whose in ((LITERAL, "the paper's windows"), (OUR_WINDOWS, "our windows"))
        for column, quantity, field, note in (
            ("AAL", "aal", "aal", WORN), ("SR decode", "decode", "decode", PRICED),
            ("SR e2e", "e2e", "e2e", PRICED),
        )
    ]  # fmt: skip
    return [*parse, *documents]


ARMS = {"VSD": "speculative", "HSD, dots.ocr": "hsd-relaxed"}
DRAFTS = {"drafts as they are": "ocr", "the worst drafts, at least": "letters"}
PUBLISHED = Reason(CHECKPOINTS, "the target, and the benchmark's pages")
LINKS = Links(
    (
        Comparison("table 4", "", "AAL", "aal", "parse", TRAINED, READ, _rows("aal", ARMS),
                   why="clean pages: OCR's drafts are longer than a window of draft tokens"),
        Comparison("table 4", "", "SR e2e", "e2e", "parse", TRAINED, READ,
                   _rows("e2e_speedup", ARMS), why=CPU_OCR),
        Comparison("table 5", "", "drafts", "seconds", "parse", TRAINED, READ,
                   _rows("draft_seconds_a_page", {"VSD": "speculative", "HSD": "hsd-relaxed"}),
                   why=CPU_OCR),
        Comparison("table 7", "", "OmniDocBench", "score", "parse", TRAINED, READ,
                   {row: Key(f"accuracy.rows[method={name}].words", times=100) for row, name in
                    (("draft", "draft"), ("baseline", "plain"), ("both stages", "hsd-relaxed"))},
                   why=SURE),
        Comparison("table 7", "", "OmniDocBench", "score", "documents", REPLAY, PAGES,
                   {row: Key(f"quality.{name}", times=100) for row, name in
                    (("draft", "draft"), ("stage 1 only", "stage 1"))},
                   why="a replay's target reads a crop as well as the page: cropping costs it "
                       "nothing but the errors that are set"),
        *_components(),
        Comparison("table 6", "", "OmniDocBench SR e2e", "e2e", "documents-clocks", REPLAY, CLOCKED,
                   {"compression": "clocked[method=plain-pruned].e2e",
                    "compression and HSD": "clocked[method=hsd-pruned].e2e"}, why=STAGE_1),
        Comparison("table 6", "", "OmniDocBench AAL", "aal", "documents-clocks", REPLAY, CLOCKED,
                   {"compression and HSD": "clocked[method=hsd-pruned].aal"}),
        Comparison("figure 3", "", "SR e2e", "e2e", "parse", TRAINED,
                   "{quality.rows[kind=ocr&arm=hsd].pages} page(s)",
                   {row: f"quality.rows[kind={kind}&arm=hsd].e2e_speedup"
                    for row, kind in DRAFTS.items()}),
    ),
    {
        "table 1": PUBLISHED,
        "table 1 /  / dots.ocr": Reason(
            UNLIKE, "at τ = 0.75 there; our replay of a target of its size reads at τ = 1"
        ),
        "table 2": PUBLISHED,
        "table 3": PUBLISHED,
        "table 4": PUBLISHED,
        "table A1": PUBLISHED,
        "table A2": PUBLISHED,
    },
)  # fmt: skip
