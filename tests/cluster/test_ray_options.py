"""`--ray` on the command line, and what is refused before anything starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from PIL import Image

from sooner.cli.main import main
from sooner.cli.parse import with_address


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["docs", "--ray"], ["docs", "--ray", "local"]),
        (["--ray", "docs"], ["--ray", "local", "docs"]),
        (["--ray", "-o", "out"], ["--ray", "local", "-o", "out"]),
        (["--ray", "auto", "docs"], ["--ray", "auto", "docs"]),
        (["--ray", "127.0.0.1:6379"], ["--ray", "127.0.0.1:6379"]),
        (["--ray", "[::1]:6379"], ["--ray", "[::1]:6379"]),
        (["--ray", "10.0.0.7"], ["--ray", "10.0.0.7"]),
        (["--ray", "localhost:port"], ["--ray", "localhost:port"]),
        (["--ray", "."], ["--ray", "local", "."]),
        (["--ray", "2024"], ["--ray", "local", "2024"]),
        (["--ray=head:1", "docs"], ["--ray=head:1", "docs"]),
        (["--", "--ray"], ["--", "--ray"]),
        (["docs"], ["docs"]),
    ],
)
def test_an_address_may_follow(arguments: list[str], meant: list[str]) -> None:
    assert with_address(arguments) == meant


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
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ray" else find(name)
    )
    error = refused(capsys, page, "-o", str(tmp_path / "out"), "--ray")
    assert "pip install 'sooner[ray]'" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ray", "--compare", "--model", "x"], "leave --ray out"),
        (["--ray", "ray://head:10001"], "run the command on a machine of the cluster"),
        (["--actors", "2"], "of --ray"),
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
