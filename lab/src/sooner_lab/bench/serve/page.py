"""The tables of a serve result, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..cores import split_sentence
from ..pages import ReportTable, cell, goals_table, head, pictures, sections
from .settings import LOAD, PACE, PLAIN

Figures = dict[str, Any]

FIGURES = {"throughput": "Tokens a second by clients, closed loops, with 95 % intervals"}
ABOUT = (
    "Every arm is a `sooner serve` process of its own, stopped by a signal while another is "
    "measured, and asked over loopback by one more process; `hf-` arms and `sooner.generate` run "
    "in the bench's process. Loads alternate between the arms, after a warm-up in which the ids of "
    "every answer are compared with HF's own incremental decoding; later answers are compared by "
    "their texts. An arm that differs shows no figure."
)


def tables(result: Figures) -> list[ReportTable]:
    """Every table that the result has figures for, the goals first."""
    found = [goals_table(result["goals"])] if result.get("goals") else []
    if rows := result.get("clients"):
        found.append(_clients(rows, result))
    if rows := result.get("poisson"):
        found.append(_poisson(rows))
    if rows := result.get("second"):
        found.append(_second(rows))
    if rows := result.get("direct"):
        found.append(_direct(rows))
    if rows := result.get("text"):
        found.append(_text(rows))
    if rows := result.get("parity"):
        found.append(_parity(rows))
    return found


def markdown(result: Figures, source: str) -> str:
    """The page of one result."""
    split = result["split"]
    lines = head(result, source, f"Serving: {result['model']}")
    lines += ["", ABOUT, "", f"{split_sentence(split['server'], split['clients'])}. {_mix(result)}"]
    lines += pictures({name: FIGURES[name] for name in drawable(result)}, source)
    lines += sections(tables(result))
    return "\n".join(lines) + "\n"


def drawable(result: Figures) -> list[str]:
    """Names of the figures that the result has data for."""
    counts = {row["clients"] for row in result.get("clients") or [] if "tokens_per_second" in row}
    return ["throughput"] if len(counts) > 1 else []


def _mix(result: Figures) -> str:
    """What is asked, in words."""
    told = []
    for kind in result["mix"]["kinds"]:
        low, high = kind["tokens"]
        what = "questions about rendered clips" if kind["kind"] == "clip" else "text alone"
        told.append(
            f"{kind['requests']} {what} (a prompt of {kind['prompt_tokens']:.0f} tokens on "
            f"average, answers of {low} to {high}, at most {kind['max_tokens']})"
        )
    return (
        f"The mix: {' and '.join(told)}, all greedy and asked equally often. A clip is sent under "
        "other bytes each time, so that it is decoded, encoded and prefilled anew; only second "
        "questions are about a clip that the server knows. The miniature's world has no pages. "
        "Without a clip it says nothing sensible, and repeats itself."
    )


LATENCIES = ("first_token_ms", "per_token_ms")
RATES = ("requests/s", "tokens/s")
TIMES = ("first token p50, ms", "p99", "time per token p50, ms", "p99")


def _rates(row: Figures) -> list[str]:
    return [
        cell(row.get("requests_per_second"), "{:.2f}"),
        cell(row.get("tokens_per_second"), "{:.0f}"),
    ]


def _times(row: Figures) -> list[str]:
    found = []
    for name in LATENCIES:
        told = row.get(name) or {}
        form = "{:.0f}" if name == "first_token_ms" else "{:.1f}"
        found += [cell(told.get(at), form) for at in ("p50", "p99")]
    return found


def _over(row: Figures) -> str:
    told = row.get("over_plain") or {}
    if told.get("value") is None:
        return "–"
    if row["arm"] == PLAIN:
        return "1.00×"
    if told["interval"] is None:
        return f"{told['value']:.2f}×"
    low, high = told["interval"]
    return f"{told['value']:.2f}× ({low:.2f}–{high:.2f})"


def _acceptance(row: Figures) -> list[str]:
    return [
        cell(row.get("acceptance_rate"), "{:.0%}"),
        cell(row.get("mean_acceptance_length"), "{:.2f}"),
    ]


def _clients(rows: Sequence[Figures], result: Figures) -> ReportTable:
    body = [
        [
            row["arm"], str(row["clients"]), *_rates(row), *_times(row), _over(row),
            *_acceptance(row), cell(row.get("cached_tokens"), "{:.0f}"),
            str(row.get("lost", "–")),
        ]
        for row in rows
    ]  # fmt: skip
    heads = [
        "arm", "clients", *RATES, *TIMES, "over plain", "accepted", "acceptance length",
        "cached tokens", "lost",
    ]  # fmt: skip
    settings = result["settings"]
    remark = (
        f"Closed loops: each client asks as soon as it is answered. Servers decode "
        f"{settings['max_rows']} rows at most, `one-by-one` one; it has as many clients as there "
        "are, and asks every question once a round. *over plain* is of tokens a second, at as many "
        f"clients, with its 95 % interval. `hf-static` takes the same requests in batches of "
        f"{settings['static_rows']} and waits for nobody to come. Time per token is behind the "
        "first one, by request."
    )
    return ReportTable("Closed loops", heads, body, remark)


def _poisson(rows: Sequence[Figures]) -> ReportTable:
    body = [
        [
            row["arm"], cell(row.get("pace_ms"), "{:.1f}"), f"{row['rate']:.2f}",
            str(row.get("requests", "–")), *_rates(row),
            *_times(row), cell((row.get("idle_per_token_ms") or {}).get("p99"), "{:.1f}"),
            cell(row.get("tail"), "{:.2f}×"), str(row.get("lost", "–")),
        ]
        for row in rows
    ]  # fmt: skip
    heads = [
        "arm", "pace, ms", "arrivals/s", "requests", *RATES, *TIMES, "p99 of one client", "tail",
        "lost",
    ]  # fmt: skip
    remark = (
        f"Poisson arrivals at {LOAD:.0%} of the requests a second that the arm answers at the most "
        "clients, sent whatever became of the others; *tail* is the p99 of the time per token over "
        f"that of one client. *pace* is `--time-per-token-ms`, {PACE:g} times that p99: prompts "
        "are held back for it, so first tokens come later. The closed loops are without."
    )
    return ReportTable("Arrivals", heads, body, remark)


def _with_interval(share: Figures | None, form: str, between: str) -> str:
    """A share and its 95 % interval; a dash where there is none."""
    if not share or share.get("value") is None:
        return "–"
    low, high = map(form.format, share["interval"])
    return f"{form.format(share['value'])} ({low}{between}{high})"


def _second(rows: Sequence[Figures]) -> ReportTable:
    body = []
    for row in rows:
        told = _with_interval(row.get("ratio"), "{:.1%}", "–")
        body.append(
            [
                row["arm"], str(row["pairs"]), cell(row.get("first_ms"), "{:.0f}"),
                cell(row.get("second_ms"), "{:.0f}"), told,
                cell(row.get("cached_tokens"), "{:.0f}"), cell(row.get("prompt_tokens"), "{:.0f}"),
            ]
        )  # fmt: skip
    heads = [
        "arm", "clips", "first question, ms", "second question, ms", "second over first",
        "cached tokens", "of prompt",
    ]  # fmt: skip
    remark = "Mean time to the first token of two questions on a clip, one after the other."
    return ReportTable("A second question", heads, body, remark)


def _direct(rows: Sequence[Figures]) -> ReportTable:
    body = []
    for row in rows:
        told = _with_interval(row.get("cost"), "{:+.1%}", " to ")
        body.append(
            [
                row["arm"], str(row["requests"]), cell(row.get("generate_ms"), "{:.0f}"),
                cell(row.get("server_ms"), "{:.0f}"), told,
            ]
        )  # fmt: skip
    heads = ["arm", "requests", "sooner.generate, ms", "server, ms", "cost of the server"]
    remark = (
        "Mean time of a request at one client, from the clip's bytes to the text, beside the same "
        "in a process without a server."
    )
    return ReportTable("What the server costs", heads, body, remark)


def _text(rows: Sequence[Figures]) -> ReportTable:
    body = [
        [row["arm"], str(row["clients"]), *_rates(row), *_times(row), _over(row)] for row in rows
    ]
    heads = ["arm", "at once", *RATES, *TIMES, "over plain"]
    failed = [f"`{row['arm']}` did not run: {row['error']}." for row in rows if "error" in row]
    remark = " ".join(
        ["Requests without a clip, so that transformers' continuous batching takes them.", *failed]
    )
    return ReportTable("Text alone", heads, body, remark)


def _parity(rows: Sequence[Figures]) -> ReportTable:
    body = [
        [
            row["arm"], row["parity"], f"{row['identical']} of {row['compared']}",
            str(row["answers"]), str(row["differing"]),
        ]
        for row in rows
    ]  # fmt: skip
    heads = ["arm", "parity", "identical ids", "texts compared", "differing"]
    return ReportTable("Parity", heads, body)
