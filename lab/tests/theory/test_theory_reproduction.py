"""The paper's tables from its own step times, within the errors that docs/theory.md states."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner_lab.theory import renewal, reproduce, tables

DOCS = Path(__file__).parents[3] / "docs" / "theory.md"


def test_table_1_keeps_the_order_of_methods_and_pairs() -> None:
    cells = {(cell.row, cell.column): cell.ours for cell in reproduce.table1()}
    for pair in tables.PAIRS.values():
        for column in tables.DATASETS if pair.vanilla else ():
            slow, fast = (cells[f"{pair.name}, {m}", column] for m in ("vanilla SD", "ParallelVLM"))
            assert fast > 1.5 * slow


def test_every_cell_of_table_1_is_within_a_tenth() -> None:
    assert max(abs(cell.ours / cell.paper - 1) for cell in reproduce.table1()) < 0.10


def test_table_6_explained_by_its_steps() -> None:
    """With its own plain step, vanilla needs 123 rounds of six draft forwards: gamma + 1."""
    step = (tables.LATENCY["plain"]["target decode"] or 0) / tables.OUTPUT_TOKENS
    rounds = (tables.LATENCY["vanilla"]["target decode"] or 0) / step
    pair = tables.PAIRS["llava-ov-7b-72b"]
    assert pair.vanilla is not None
    assert tables.OUTPUT_TOKENS / rounds == pytest.approx(pair.vanilla.mean_run_length, rel=0.01)
    forwards = (tables.LATENCY["vanilla"]["draft decode"] or 0) / rounds / pair.draft_ms[0.0] * 1e3
    assert forwards == pytest.approx(tables.VANILLA_DRAFT_TOKENS + 1, rel=0.01)


def test_table_6_adds_a_draft_prefill_to_plain_decoding() -> None:
    plain = tables.LATENCY["plain"]
    parts = [plain[name] or 0 for name in ("draft prefill", "target prefill", "target decode")]
    assert sum(parts) == pytest.approx(plain["total"], abs=0.01)


def test_the_docs_name_what_it_takes_to_win() -> None:
    lines = DOCS.read_text().splitlines()
    for c in (2, 3, 5, 7, 9, 12, 20):
        cells = []
        for rate in (0.6, 0.7, 0.8, 0.872, 0.9, 0.95, 0.98):
            ours, vanilla = (
                min(time(c, gamma, rate) for gamma in range(1, 65))
                for time in (renewal.parallel_time, renewal.vanilla_time)
            )
            cells.append(f"{c / ours:.2f} ({vanilla / ours:.2f})")
        assert f"| {c} | {' | '.join(cells)} |" in lines
