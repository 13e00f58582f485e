"""The clients' part of an act page: a table, and its sentence."""

from __future__ import annotations

from typing import Any

from ..cores import split_sentence
from ..pages import ReportTable, cell

TITLE = "A server under clients"
COLUMNS = (
    ("requests", "requests", "{}"), ("lost", "lost", "{}"),
    ("requests_per_second", "requests/s", "{:.1f}"), ("times_one", "times one client", "{:.2f}×"),
    ("p50_ms", "p50 ms", "{:.1f}"), ("p95_ms", "p95 ms", "{:.1f}"), ("p99_ms", "p99 ms", "{:.1f}"),
    ("direct_ms", "without a server, ms", "{:.1f}"),
)  # fmt: skip


def clients_table(rows: list[dict[str, Any]]) -> ReportTable:
    """Every row; the remark says how it was measured and what the most clients get."""
    body = [
        [
            row["method"],
            str(row["clients"]),
            *(cell(row.get(key), form) for key, _, form in COLUMNS),
        ]
        for row in rows
    ]
    heads = ["method", "clients", *(name for _, name, _ in COLUMNS)]
    return ReportTable(TITLE, heads, body, f"{gain_sentence(rows)} {_how(rows[0])}")


def gain_sentence(rows: list[dict[str, Any]]) -> str:
    """What the most clients get of the requests a second that one gets, by method."""
    most = max(row["clients"] for row in rows)
    fewest = min(row["clients"] for row in rows)
    told = [
        f"{row['times_one']:.1f} times with `{row['method']}`"
        for row in rows
        if row["clients"] == most
    ]
    return f"{most} clients get the actions a second of {fewest} {' and '.join(told)}."


def _how(row: dict[str, Any]) -> str:
    where = split_sentence(row["server_cores"], row["client_cores"])
    nagle = "off on both sides" if row["no_delay"] else "ON on a socket, so latencies are too long"
    return (
        f"{where}; Nagle's algorithm is {nagle}. Rounds alternate between the numbers of clients; "
        "requests a second are the median round's."
    )
