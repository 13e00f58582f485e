"""`sooner doctor --models`: the table of what is decoded, printed and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from sooner.cli.main import app
from sooner.models.support import page, supported

runner = CliRunner()


def test_the_table_is_printed_and_written(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    told = runner.invoke(app, ["doctor", "--models", "--json", str(path)])
    assert told.exit_code == 0, told.output
    lines = told.output.splitlines()
    assert lines[0].split() == ["model_type", "status", "adapter", "trees", "reason"]
    for one in supported():
        (line,) = (line for line in lines if line.split()[0] == one.model_type)
        assert one.status in line
    written = json.loads(path.read_text())["types"]
    assert [row["model_type"] for row in written] == [one.model_type for one in supported()]
    assert lines[-1] == f"{sum(one.status == 'exact' for one in supported())} exact, " + ", ".join(
        f"{sum(one.status == status for one in supported())} {status}"
        for status in ("words only", "refused")
    )


def test_whatever_is_refused_says_why_and_what_it_would_take() -> None:
    for one in supported():
        if one.status != "exact":
            assert re.search(
                "would take|would have to|write an adapter|its own generate", one.reason
            ), one


def test_the_page_is_the_table() -> None:
    path = Path(__file__).parents[2] / "docs" / "models.md"
    assert path.read_text(encoding="utf-8") == page(), "python -m sooner.models.support writes it"
