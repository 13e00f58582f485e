"""`sooner eval docs --ray`: the cluster's pages are scored as those of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.data")

from evaluation import benchmarks
from evaluation.benchmarks import FRUIT_PAGE
from sooner.cli.main import main


def scored(
    folder: Path, out: Path, drafts: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[dict[str, Any], set[str]]:
    """The result without what is told of the run, and the predictions."""
    result = out.with_suffix(".json")
    with pytest.raises(SystemExit) as left:
        main(["eval", "docs", str(folder), "-o", str(out), "--drafter", f"text:{drafts}",
              "--json", str(result), "-q", *more])  # fmt: skip
    errors = capsys.readouterr().err
    assert left.value.code == 2, errors  # the second page has no picture that can be read
    assert result.exists(), errors
    report = json.loads(result.read_text())
    return report, {f"{file.name}: {file.read_text()}" for file in out.glob("*.md")}


@pytest.mark.slow
def test_the_same_scores_on_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One page is drafted well, and one fails."""
    folder = benchmarks.omnidocbench(tmp_path / "b", pictures=True)
    next(folder.rglob("two.jpg")).write_bytes(b"no picture")
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    (drafts / "one.md").write_text(FRUIT_PAGE)
    alone, texts = scored(folder, tmp_path / "alone", drafts, capsys)
    report, ray_texts = scored(
        folder, tmp_path / "by-ray", drafts, capsys, "--ray", "--actors", "1"
    )
    assert texts == ray_texts
    assert any(text.startswith("one.md: ") for text in texts)
    assert report == alone
