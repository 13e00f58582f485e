"""`--ray` on the command line, and what is refused before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from sooner.cli.main import main
from sooner.cli.parse import ParseOptions


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["parse", *arguments])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.fixture
def page(tmp_path: Path) -> str:
    Image.new("RGB", (20, 20), "white").save(tmp_path / "a.png")
    return str(tmp_path / "a.png")


def test_a_missing_ray_is_reported_in_a_line(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    error = refused(capsys, page, "-o", str(tmp_path / "out"), "--ray")
    assert "pip install 'sooner[ray]'" in error


def test_files_of_drafts_are_named_from_the_root(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drafts").mkdir()
    monkeypatch.chdir(tmp_path)
    made = ParseOptions(inputs=[page], output="out", drafter="saved:drafts", ray=True)
    parser = made.ray_job(lambda line, counts: None).parser
    assert parser["drafter"] == f"saved:{tmp_path}/drafts"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ray", "--compare", "--model", "x"], "leave --ray out"),
        (
            ["--ray", "--ray-address", "ray://head:10001"],
            "'ray://head:10001' is no address of a Ray cluster; give HOST:PORT",
        ),
        (["--actors", "2"], "of --ray"),
        (["--ray-address", "auto"], "of --ray"),
        (["--ray", "--actors", "0"], "actors"),
    ],
)
def test_what_does_not_go_together_is_refused(
    page: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    out = str(tmp_path / "out")
    assert message in refused(capsys, page, "-o", out, "--drafter", "text-layer", *arguments)
