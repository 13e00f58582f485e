"""The paper's tables from its own step times, within the errors that docs/theory.md states."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner_lab.theory import renewal, reproduce, tables

DOCS = Path(__file__).parents[3] / "docs" / "theory.md"


def test_table_1_within_ten_percent() -> None:
    cells = reproduce.table1()
    assert len(cells) == 15 + 25
    assert reproduce.worst(cells) < 0.10
    assert reproduce.mean(cells) < 0.05


def test_table_1_keeps_the_order_of_methods_and_pairs() -> None:
    cells = {(cell.row, cell.column): cell.ours for cell in reproduce.table1()}
    for pair in tables.PAIRS.values():
        for column in tables.DATASETS if pair.vanilla else ():
            slow, fast = (cells[f"{pair.name}, {m}", column] for m in ("vanilla SD", "ParallelVLM"))
            assert fast > 1.5 * slow


def test_algorithm_1_to_the_letter_within_ten_percent() -> None:
    literal = [cell for cell in reproduce.table1() if cell.literal]
    assert all(abs((cell.literal or 0) / cell.paper - 1) < 0.10 for cell in literal)


def test_table_7_within_eleven_percent() -> None:
    cells = reproduce.table7()
    assert reproduce.worst(cells) < 0.11
    assert [cell.ours for cell in cells] == sorted((cell.ours for cell in cells), reverse=True)


def test_table_6_within_eighteen_percent() -> None:
    """Its own plain step (446 ms) and draft (95 ms) are not table 3's (420 and 78)."""
    cells = {(cell.row, cell.column): cell for cell in reproduce.table6()}
    assert reproduce.worst(list(cells.values())) < 0.18
    assert all(abs(c.error) < 0.08 for (_, name), c in cells.items() if name == "total")


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


def test_unknown_pairs_are_named() -> None:
    with pytest.raises(SoonerError, match="did you mean 'llava-ov-7b-72b'"):
        tables.find("llava-ov-7b-72")


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


def test_the_docs_hold_these_tables() -> None:
    """`sooner predict --reproduce` makes them."""
    assert reproduce.markdown() in DOCS.read_text()
