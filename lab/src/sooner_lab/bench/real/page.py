"""The page of `sooner bench real`."""

from __future__ import annotations

from collections.abc import Callable

from ..declared import Data, Value
from ..plots import Figure, Panel
from ..render import Page, Table
from .run import best_fixed
from .settings import FIXED_ARMS, OUTSIDE


def interval(each: Data) -> str | None:
    """Return the interval of a row's speed over plain decoding, as text."""
    span = (each.get("over_plain") or {}).get("interval")
    return f"{span[0]:.2f} to {span[1]:.2f}" if span else None


COLUMNS: tuple[tuple[Value, str, str], ...] = (
    ("workload", "workload", "{}"), ("method", "arm", "{}"), ("tokens", "tokens", "{}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"), ("decode_speedup", "decode", "{:.2f}×"),
    (interval, "95 %", "{}"), ("e2e_speedup", "e2e", "{:.2f}×"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("acceptance_rate", "accepted", "{:.0%}"), ("parity", "parity", "{}"),
)  # fmt: skip
REMARK = (
    "*decode* and *e2e* are speed-ups over `plain`, behind the first token and from the prepared "
    "prompt to the last token; the interval is a paired bootstrap over prompts. `prompt-lookup` "
    "and `prediction` are as they are built without options, `prompt-lookup-N` drafts N tokens "
    "whatever it gains. `prediction` drafts the text that is to be copied or edited, as the "
    "server's `prediction` does. Parity is against HF's own `generate`. The chances that prompt "
    "lookup starts with (`MATCH_CHANCES`) were set after answers to the first ten prompts of each "
    "workload, so this bench begins behind them. `copy` was worded anew after one run had missed "
    "the gate: SmolLM2 copied any paragraph without an example in part alone, so it gets prose, "
    "behind a turn that shows what is meant. That was chosen on paragraphs that are not measured. "
    "Two settings were changed after a first run: arms take turns in being first, where plain "
    "decoding always was; and `prediction` was `HSD`, which the server does not use for it."
)


OUTSIDE_REMARK = (
    "`hf-early-exit` drafts with the first half of the model's layers, which nobody trained for "
    "it. `llama-cpp-*` are llama.cpp on the same dequantised weights, keys and values in the dtype "
    "of its name, as a clock from outside; of how many prompts its tokens are HF's is *same "
    "tokens*."
)


def _is_outside(result: Data) -> bool:
    return any(each["method"] in (*OUTSIDE, "hf-early-exit") for each in result["arms"])


def _missing(result: Data) -> list[str]:
    return ["", f"Left out: {result['missing']}."] if "missing" in result else []


def _shown(count: int) -> Callable[[Data], list[Data]]:
    """Return what makes the rows of a number of prompts, with the best fixed length alone."""

    def rows(result: Data) -> list[Data]:
        best = {(each["workload"], each["rows"], each["method"]) for each in best_fixed(result)}
        return [
            each
            for each in result["arms"]
            if (each["rows"] > 1) == (count > 1)
            and (
                each["method"] not in FIXED_ARMS
                or (each["workload"], each["rows"], each["method"]) in best
            )
        ]

    return rows


def _bars(result: Data) -> list[Data]:
    return [
        each | {"method": "best fixed length" if each["method"] in FIXED_ARMS else each["method"]}
        for each in _shown(1)(result)
        if each.get("decode_speedup") and each["method"] != "plain"
    ]


PAGE = Page(
    lambda result: f"Real weights, real texts: {result['model']}",
    (
        Table(
            "One prompt at a time",
            _shown(1),
            lambda result: (
                (*COLUMNS, ("same_tokens", "same tokens", "{:.0%}"))
                if _is_outside(result)
                else COLUMNS
            ),
            lambda result: f"{REMARK} {OUTSIDE_REMARK}" if _is_outside(result) else REMARK,
        ),
        Table(
            "Several prompts at once",
            _shown(2),
            (("rows", "rows", "{}"), *COLUMNS),
            "Prompts of a workload in one ragged batch, one batch each, so there is no interval. "
            "Transformers runs prompt lookup and assistants with one row alone.",
        ),
    ),
    (
        Figure(
            "speedup",
            "Decoding speed over plain decoding, by workload",
            (
                Panel(
                    _bars,
                    "workload",
                    "decode_speedup",
                    "",
                    "times plain decoding",
                    "method",
                    kind="bar",
                    level=1.0,
                ),
            ),
            size=(8.5, 4.2),
        ),
    ),
    intro=_missing,
    goals="Fixed before any result. The workload `copy` was added after the first results of the "
    "others: the gate of 2.9 had been set for copies, and `copy-edit`, which was judged by it, "
    "asks for edits.",
)
