"""The page of `sooner bench serve`."""

from __future__ import annotations

from ..cores import split_sentence
from ..declared import Data
from ..plots import Figure, Panel
from ..render import Columns, Page, Table
from .settings import PLAIN

ABOUT = (
    "Every arm is a `sooner serve` process of its own, stopped by a signal while another is "
    "measured, and asked over loopback by one more process; `hf-` arms run in the bench's "
    "process. Loads alternate between the arms, after a warm-up in which the ids of "
    "every answer are compared with HF's own incremental decoding; later answers are compared by "
    "their texts. An arm that differs shows no figure."
)


def _mix(result: Data) -> str:
    """What is asked, in words."""
    kinds = []
    for kind in result["mix"]["kinds"]:
        low, high = kind["tokens"]
        what = "questions about rendered clips" if kind["kind"] == "clip" else "text alone"
        kinds.append(
            f"{kind['requests']} {what} (a prompt of {kind['prompt_tokens']:.0f} tokens on "
            f"average, answers of {low} to {high}, at most {kind['max_tokens']})"
        )
    return (
        f"The mix: {' and '.join(kinds)}, all greedy and asked equally often. A clip is sent under "
        "other bytes each time, so that it is decoded, encoded and prefilled anew; only second "
        "questions are about a clip that the server knows. The miniature's world has no pages. "
        "Without a clip it says nothing sensible, and repeats itself."
    )


def _about(result: Data) -> list[str]:
    split = result["split"]
    where = split_sentence(split["server"], split["clients"])
    return ["", ABOUT, "", f"{where}. {_mix(result)}"]


def _over(row: Data) -> str | None:
    """A speed over plain decoding's with its interval."""
    speedup = row.get("over_plain") or {}
    if speedup.get("value") is None:
        return None
    if row["arm"] == PLAIN:
        return "1.00×"
    text = f"{speedup['value']:.2f}×"
    if speedup["interval"] is None:
        return text
    low, high = speedup["interval"]
    return f"{text} ({low:.2f}–{high:.2f})"


RATES: Columns = (
    ("requests_per_second", "requests/s", "{:.2f}"), ("tokens_per_second", "tokens/s", "{:.0f}"),
    ("first_token_ms.p50", "first token p50, ms", "{:.0f}"),
    ("first_token_ms.p99", "p99", "{:.0f}"),
    ("per_token_ms.p50", "time per token p50, ms", "{:.1f}"), ("per_token_ms.p99", "p99", "{:.1f}"),
)  # fmt: skip


def _loops(result: Data) -> str:
    settings = result["settings"]
    return (
        f"Closed loops: each client asks as soon as it is answered. Servers decode "
        f"{settings['max_rows']} rows at most, `one-by-one` one; it has as many clients as there "
        "are, and asks every question once a round. *over plain* is of tokens a second, at as many "
        f"clients, with its 95 % interval. `hf-static` takes the same requests in batches of "
        f"{settings['static_rows']} and waits for nobody to come. Time per token is behind the "
        "first one, by request."
    )


def _text(result: Data) -> str:
    failed = [
        f"`{row['arm']}` did not run: {row['error']}." for row in result["text"] if "error" in row
    ]
    about = "Requests without a clip, so that transformers' continuous batching takes them."
    return " ".join([about, *failed])


def _speeds(result: Data) -> list[Data]:
    rows = [row for row in result.get("clients") or [] if "tokens_per_second" in row]
    return rows if len({row["clients"] for row in rows}) > 1 else []


def _faster(result: Data) -> list[Data]:
    rows = [row for row in _speeds(result) if (row["over_plain"] or {}).get("value")]
    arms = [row["arm"] for row in rows]
    return [row for row in rows if row["arm"] != PLAIN and arms.count(row["arm"]) > 1]


PAGE = Page(
    lambda result: f"Serving: {result['model']}",
    (
        Table(
            "Closed loops", "clients",
            (
                ("arm", "arm", "{}"), ("clients", "clients", "{}"), *RATES,
                (_over, "over plain", "{}"), ("acceptance_rate", "accepted", "{:.0%}"),
                ("mean_acceptance_length", "acceptance length", "{:.2f}"),
                ("cached_tokens", "cached tokens", "{:.0f}"), ("lost", "lost", "{}"),
            ),
            _loops,
        ),
        Table(
            "Text alone", "text",
            (
                ("arm", "arm", "{}"), ("clients", "at once", "{}"), *RATES,
                (_over, "over plain", "{}"),
            ),
            _text,
        ),
        Table(
            "Parity", "parity",
            (
                ("arm", "arm", "{}"), ("parity", "parity", "{}"),
                (lambda row: f"{row['identical']} of {row['compared']}", "identical ids", "{}"),
                ("answers", "texts compared", "{}"), ("differing", "differing", "{}"),
            ),
        ),
    ),
    (
        Figure(
            "throughput",
            "Tokens a second by clients, closed loops, with 95 % intervals",
            (
                Panel(_speeds, "clients", "tokens_per_second", "clients", "tokens a second", "arm",
                      log="x"),
                Panel(_faster, "clients", "over_plain.value", "clients", "over plain, ×", "arm",
                      interval="over_plain.interval", log="x", level=1.0),
            ),
        ),
    ),
    intro=_about,
    goals="Fixed before any result.",
)  # fmt: skip
