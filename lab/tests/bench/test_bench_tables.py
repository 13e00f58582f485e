"""Tables of benches in a terminal."""

from __future__ import annotations

import pytest

from sooner_lab.bench.pages import ReportTable
from sooner_lab.cli.bench_parts import show_tables


def test_names_are_whole_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that does not fit goes on in the next line of its cell."""
    name = "speculative-auto-with-a-pruned-draft"
    for variable, value in (("FORCE_COLOR", "1"), ("COLUMNS", "60"), ("TERM", "dumb")):
        monkeypatch.setenv(variable, value)
    heads = ["arm", *[f"figure {number}" for number in range(6)]]
    show_tables([ReportTable("Arms", heads, [[name, *["123.45"] * 6]])], words=1)
    shown = capsys.readouterr().out
    assert "…" not in shown
    cells = [line.split("│")[1].strip() for line in shown.splitlines() if line.count("│") > 5]
    assert "".join(cells) == name
