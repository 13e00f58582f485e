"""`sooner doctor --models`: the table of what is decoded, printed and as JSON."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from typer.testing import CliRunner

from sooner.cli.main import app
from sooner.models.support import supported

runner = CliRunner()


def test_the_table_is_printed_and_written(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    result = runner.invoke(app, ["doctor", "--models", "--json", str(path)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["model_type", "status", "adapter", "trees", "reason"]
    for entry in supported():
        (line,) = (line for line in lines if line.split()[0] == entry.model_type)
        assert entry.status in line
    written = json.loads(path.read_text())["types"]
    assert [row["model_type"] for row in written] == [entry.model_type for entry in supported()]
    assert lines[
        -1
    ] == f"{sum(entry.status == 'exact' for entry in supported())} exact, " + ", ".join(
        f"{sum(entry.status == status for entry in supported())} {status}"
        for status in ("words only", "refused")
    )


def test_every_refusal_names_the_reason_and_the_remedy() -> None:
    for entry in supported():
        if entry.status != "exact":
            assert re.search(
                "would take|would have to|write an adapter|its own generate", entry.reason
            ), entry


def test_the_page_is_the_table() -> None:
    root = Path(__file__).parents[2]
    page = runpy.run_path(str(root / "tools" / "models_page.py"))["page"]()
    written = (root / "docs" / "models.md").read_text(encoding="utf-8")
    assert written == page, "python tools/models_page.py writes it"
