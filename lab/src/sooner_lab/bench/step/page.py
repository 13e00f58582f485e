"""The page of `sooner bench step`."""

from __future__ import annotations

from ..declared import Data
from ..render import Page, Table


def _rows(result: Data) -> list[Data]:
    return [*result["methods"], *result["hf"]]


def _title(result: Data) -> str:
    settings = result["settings"]
    return (
        f"One round: operations of {result['ops_layers']} layers; bytes of {result['model']}'s "
        f"shape behind {settings['length']:,} tokens, a block of {settings['block']}"
    )


def _remark(result: Data) -> str:
    steps = [f"`{row['method']}`" for row in result["hf"] if row["method"] != "hf-generate"]
    are = "are" if len(steps) > 1 else "is"
    return (
        "A step is forward, judge and commit, counted on fake CUDA tensors in bf16. A round is a "
        "step, the report that the host reads, and the next draft, counted on a simulated device "
        "in fp32 (bf16 casts more). `hf-generate` is a whole round of `generate`, "
        f"{' and '.join(steps)} {are} its forward and choice. Verification counts as the least "
        "bytes that each operation can move."
    )


def _waits(result: Data) -> list[str]:
    """Every wait by method, and the faults."""
    lines = []
    for row in _rows(result):
        if waits := [*(row.get("waits") or []), *(row.get("waits_of_round") or [])]:
            lines += ["", f"## Waits of {row['method']}", "", *[f"- `{each}`" for each in waits]]
    if result["faults"]:
        lines += ["", "## Faults", "", *[f"- {each}" for each in result["faults"]]]
    return lines


PAGE = Page(
    "Steps",
    (
        Table(
            _title,
            _rows,
            (
                ("method", "method", "{}"), ("engine", "engine", "{}"),
                ("ops_per_round", "operations", "{:.0f}"),
                ("host_reads_per_round", "reads", "{:.1f}"),
                ("uploads_per_round", "uploads", "{:.1f}"),
                ("graph_breaks", "graph breaks", "{}"), ("recompiles", "recompiles", "{}"),
                ("verify_bytes_over_plain", "verify / plain bytes", "{:.2f}×"),
                ("ops_of_round", "operations of a round", "{:.0f}"),
                ("reads_of_round", "its reads", "{:.1f}"),
                ("uploads_of_round", "its uploads", "{:.1f}"),
                ("clocks_of_round", "its clocks", "{:.1f}"),
            ),
            _remark,
        ),
    ),
    outro=_waits,
)  # fmt: skip
