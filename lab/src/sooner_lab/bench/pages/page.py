"""The page of `sooner bench pages`."""

from __future__ import annotations

from ..declared import Data, Value
from ..plots import Figure, Panel
from ..real.page import interval
from ..render import Page, Table

ARM_COLUMNS: tuple[tuple[Value, str, str], ...] = (
    ("method", "arm", "{}"), ("mode", "mode", "{}"), ("tokens", "tokens", "{}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"), ("decode_speedup", "decode", "{:.2f}×"),
    ("e2e_speedup", "e2e", "{:.2f}×"), (interval, "95 %", "{}"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("region_acceptance_length", "of regions", "{:.2f}"),
    ("region_share", "time in stage 1", "{:.0%}"), ("accuracy", "words right", "{:.1%}"),
    ("parity", "parity", "{}"),
)  # fmt: skip
ARM_REMARK = (
    "Pages on which plain decoding does not run away. *decode* counts decoding of both stages, "
    "*e2e* everything from the prepared readings to the last token; OCR is in neither, for any "
    "arm. The interval is a paired bootstrap over pages, of tokens a second end to end. "
    "`paper-literal` looks up windows of three tokens in what stage 1 reads and does nothing "
    "beside that; `hsd-page` has no stage 1; `hsd` reads every region first; `hsd-unsure` those "
    "that OCR is unsure of; `hsd-N` is `hsd` with the acceptance threshold N. Words are compared "
    "with the function in which every use of the variable is renamed."
)
GATE_COLUMNS: tuple[tuple[Value, str, str], ...] = (
    ("kind", "pages", "{}"), ("pages", "number", "{}"), ("accuracy", "words right", "{:.1%}"),
    ("rough_accuracy", "in the prompt", "{:.1%}"), ("runaways", "runaways", "{:.0%}"),
    ("cut", "cut at the limit", "{:.0%}"),
)  # fmt: skip
GATE_REMARK = (
    "Whether the model can do this at all. Pages of PDFs are to be written as Markdown; their "
    "words are compared with the text layer. In pages of code, functions of Python's standard "
    "library that were drawn and read by OCR, a variable is to be renamed. A runaway is an answer"
    " that the watch of `sooner parse` would have stopped because it repeats itself; it is in"
    " no speed below."
)


def _gate(result: Data) -> list[Data]:
    kinds = (("gate", "of PDFs"), ("code", "of code"))
    return [{"kind": kind, **result[name]} for name, kind in kinds if name in result]


def _epsilon(result: Data) -> list[Data]:
    return [result["epsilon"]]


PAGE = Page(
    lambda result: f"HSD on real logits: {result['model']} edits pages",
    (
        Table("Can the model do it?", _gate, GATE_COLUMNS, GATE_REMARK),
        Table("Arms", "arms", ARM_COLUMNS, ARM_REMARK),
        Table(
            "How far texts are from the answer",
            _epsilon,
            (
                ("regions", "ε of regions", "{:.1%}"), ("draft", "of drafts", "{:.1%}"),
                ("rough", "of the prompt", "{:.1%}"),
            ),
            "ε is the share of the answer's tokens about a page that do not stand, in the same "
            "order, in another text: what the model wrote about the regions alone, the drafts, the "
            "reading in the prompt.",
        ),
        Table(
            "Speed that was predicted",
            "predictions",
            (
                ("method", "arm", "{}"), ("predicted", "predicted", "{:.2f}×"),
                ("measured", "measured", "{:.2f}×"), ("difference", "difference", "{:.0%}"),
            ),
            "For every second page, from the others: rounds a token, the time of a round's forward "
            "and of stage 1, over plain decoding's forwards. The host's work is not in it.",
        ),
    ),
    (
        Figure(
            "speedup",
            "Speed over plain decoding, end to end",
            (
                Panel(
                    lambda result: [each for each in result["arms"] if each["method"] != "plain"],
                    "method", "e2e_speedup", "", "times plain decoding", kind="bar", level=1.0,
                ),
            ),
            size=(8.5, 4.0),
        ),
    ),
    goals="Fixed before any result.",
)  # fmt: skip
