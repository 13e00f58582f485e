"""The tables of a step result, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, sections

COLUMNS = (
    ("method", "method", "{}"), ("engine", "engine", "{}"),
    ("ops_per_round", "operations", "{:.0f}"),
    ("host_reads_per_round", "reads", "{:.1f}"), ("uploads_per_round", "uploads", "{:.1f}"),
    ("graph_breaks", "graph breaks", "{}"), ("recompiles", "recompiles", "{}"),
    ("verify_bytes_over_plain", "verify / plain bytes", "{:.2f}×"),
    ("ops_of_round", "operations of a round", "{:.0f}"),
    ("reads_of_round", "its reads", "{:.1f}"), ("uploads_of_round", "its uploads", "{:.1f}"),
    ("clocks_of_round", "its clocks", "{:.1f}"),
)  # fmt: skip


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """One table of all methods and of HF's own step."""
    settings = result["settings"]
    title = (
        f"One round: operations of {result['ops_layers']} layers; bytes of {result['model']}'s "
        f"shape behind {settings['length']:,} tokens, a block of {settings['block']}"
    )
    rows = [
        [cell(row.get(key), form) for key, _, form in COLUMNS]
        for row in (*result["methods"], *result["hf"])
    ]
    return [ReportTable(title, [heading for _, heading, _ in COLUMNS], rows, REMARK)]


REMARK = (
    "A step is forward, judge and commit, counted on fake CUDA tensors in bf16. A round is a step, "
    "the report that the host reads, and the next draft, counted on a simulated device in fp32 "
    "(bf16 casts more). `hf-generate` is a whole round of `generate`, `hf-dynamic` and `hf-static` "
    "are its forward and choice. Verification counts as the least bytes that each operation can "
    "move."
)


def markdown(result: dict[str, Any], source: str) -> str:
    """The page; `source` names the JSON it came from."""
    lines = [*head(result, source, "Steps"), "", *sections(tables(result))]
    for row in (*result["methods"], *result["hf"]):
        told = [*(row.get("waits") or []), *(row.get("waits_of_round") or [])]
        if told:
            lines += ["", f"## Waits of {row['method']}", "", *[f"- `{one}`" for one in told]]
    if result["faults"]:
        lines += ["", "## Faults", "", *[f"- {one}" for one in result["faults"]]]
    return "\n".join(lines) + "\n"
