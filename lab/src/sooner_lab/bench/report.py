"""Tables made from result files."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

from .act import page as act
from .drafters import page as drafters
from .gpu import page as gpu
from .imagine import page as imagine
from .pages import ReportTable, cell, figures_folder, head, table_lines
from .papers import page as papers
from .parallel import page as parallel
from .parse import page as parse
from .prefill import page as prefill
from .replay import page as replay
from .scale import page as scale
from .serve import page as serve
from .soak import page as soak
from .step import page as step

PAGES: dict[str, Any] = {
    "act": act,
    "drafters": drafters,
    "gpu": gpu,
    "imagine": imagine,
    "papers": papers,
    "parallel": parallel,
    "parse": parse,
    "prefill": prefill,
    "replay": replay,
    "scale": scale,
    "serve": serve,
    "soak": soak,
    "step": step,
}
"""Pages of the benches that have more to show than one table of arms."""

WITHOUT_FIGURES = ("drafters", "gpu", "papers", "scale", "soak", "step")

STUDIES = ("arm", "canvas", "documents", "marks")
"""Benches that left the tree; their results and pages stay as they are."""

STUDIES_COMMIT = "9362df8"
"""The last commit that has their code."""

COLUMNS = (
    ("method", "method", "{}"),
    ("mode", "mode", "{}"),
    ("tokens", "tokens", "{}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"),
    ("decode_speedup", "decode", "{:.2f}×"),
    ("e2e_speedup", "e2e", "{:.2f}×"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("theory_speedup", "theory", "{:.2f}×"),
    ("share_of_theory", "of theory", "{:.0%}"),
    ("overhead_share", "outside forwards", "{:.1%}"),
    ("parity", "parity", "{}"),
    ("acceptance_ratio", "𝒜", "{:.1%}"),
    ("retention", "retention", "{:.0%}"),
)
"""Key, heading and format of each column of the arms table."""


def cells(arm: dict[str, Any]) -> list[str]:
    """The formatted figures of one arm; what was not measured, or may not be shown, is a dash."""
    return [cell(arm.get(key), form) for key, _, form in COLUMNS]


def headings() -> list[str]:
    """Headings of the table of arms."""
    return [heading for _, heading, _ in COLUMNS]


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """Every table of a result."""
    if result["bench"] in PAGES:
        return PAGES[result["bench"]].tables(result)
    title = f"{result['bench']}: {result['model']}, {result['clips']} clips"
    return [ReportTable(title, headings(), [cells(arm) for arm in result["arms"]])]


def markdown(result: dict[str, Any], source: str) -> str:
    """The page of tables of one result object; `source` names the JSON that it came from.

    Raises:
        SoonerError: the bench left the tree; the message names the last commit that has it.
    """
    if result["bench"] in STUDIES:
        raise SoonerError(
            f"'{source}' is a result of `sooner bench {result['bench']}`, which left the tree; "
            f"write its page at commit {STUDIES_COMMIT}"
        )
    if result["bench"] in PAGES:
        return PAGES[result["bench"]].markdown(result, source)
    title = f"{result['bench'].capitalize()}: {result['model']}"
    lines = [*head(result, source, title), ""]
    lines += table_lines(headings(), [cells(arm) for arm in result["arms"]])
    lines += [
        "",
        "*decode* and *e2e* are speed-ups over `plain`; *theory* is the speed-up that the arm's "
        "own acceptance and step times allow (`sooner_lab.bench.protocol.theory_speedup`). 𝒜 is "
        "the "
        "share of an approximate arm's tokens that the full target accepts "
        "(`sooner_lab.bench.fidelity`).",
    ]
    for note in footnotes(result):
        lines += ["", note]
    return "\n".join(lines) + "\n"


def write_figures(result: dict[str, Any], path: Path) -> list[Path]:
    """Draw the figures of the result at `path`, in `figures/` beside it; not every bench has any.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    if result["bench"] not in PAGES or result["bench"] in WITHOUT_FIGURES:
        return []
    plots = importlib.import_module(f".{result['bench']}.plots", __package__)
    folder = figures_folder(path)
    return [folder / name for name in plots.write_figures(result, folder, path.stem)]


def footnotes(result: dict[str, Any]) -> list[str]:
    """What was measured beside the arms, a line each, where the bench has no page of its own."""
    if result["bench"] in PAGES:
        return []
    batch, memory = result.get("batch"), result.get("memory")
    return [*(_batch(batch) if batch else []), *(_memory(memory) if memory else [])]


def _batch(batch: dict[str, Any]) -> list[str]:
    told = [
        f"{arm['method']} {arm['tokens_per_second']:.0f} tokens/s, {arm['over_plain']:.2f}× plain "
        f"(one row: {cell(arm['one_row_over_plain'], '{:.2f}×')}), parity "
        f"{', '.join(sorted(set(arm['parity'])))}"
        for arm in batch["arms"]
    ]
    return [f"Batch of {batch['rows']}, over plain decoding of the same batch: {'; '.join(told)}."]


def _memory(memory: dict[str, Any]) -> list[str]:
    mib = {key: value / 2**20 for key, value in memory.items() if key.endswith("_bytes")}
    within = "within" if memory["within_budget"] else "above"
    return [
        f"Peak memory: plain {mib['plain_bytes']:.0f} MiB, speculative "
        f"{mib['speculative_bytes']:.0f} MiB, {within} the budget of {mib['budget_bytes']:.0f} MiB "
        f"(plain + 5 % + {mib['draft_bytes']:.1f} MiB of draft weights and cache)."
    ]
