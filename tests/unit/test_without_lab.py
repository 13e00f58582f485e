"""What the commands say without miniatures or the lab: one line, with the way out."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sooner import miniatures, plugins
from sooner.cli.main import main
from tasks.videos import write

NONE: Callable[[str], tuple[Any, ...]] = lambda group: ()  # noqa: E731


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plugins, "plugins", NONE)
    monkeypatch.setattr(miniatures, "plugins", NONE)
    monkeypatch.chdir(tmp_path)
    write(Path("clip.mp4"), frames=4)
    Image.new("RGB", (32, 32)).save("picture.png")


@pytest.mark.parametrize(
    "arguments",
    [
        "caption clip.mp4",
        "caption clip.mp4 clip.mp4 -o captions.jsonl",
        "caption --sample",
        "parse --sample -o out",
        "imagine circle",
        "imagine --sample",
        "imagine --continue sample",
        "imagine --continue clip.mp4",
        "act once picture.png reach",
        "act serve",
        "act rollout --env table",
        "verify clip.mp4",
        "search patterns clip.mp4",
    ],
)
def test_an_error_line_names_what_to_install(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments.split())
    lines = capsys.readouterr().err.splitlines()
    (line,) = [text for text in lines if text.startswith("sooner: ")]
    assert left.value.code == 2
    assert "miniature is not installed" in line
    assert "--model" in line
    assert "`pip install sooner-miniatures`" in line


def test_drafts_need_neither_model_nor_miniature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("draft.md").write_text("some words\n")
    with pytest.raises(SystemExit) as left:
        main(["parse", "picture.png", "-o", "out", "--drafter", "text:draft.md", "--quiet"])
    assert left.value.code == 0, capsys.readouterr().err
    (made,) = tmp_path.glob("out/**/page-*.md")
    assert "some words" in made.read_text()


def test_doctor_names_both_distributions_and_what_they_would_add(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs = {
        "sooner": ["torch>=2", "fastapi; extra == 'serve'"],
        "sooner-lab": ["sooner", "no-such-thing; extra == 'bench'"],
    }
    monkeypatch.setattr(importlib.metadata, "requires", needs.__getitem__)
    with pytest.raises(SystemExit):
        main(["doctor"])
    out = capsys.readouterr().out
    assert "sooner[serve]" in out
    assert "no-such-thing (missing); pip install 'sooner-lab[bench]' adds what is missing" in out


def test_doctor_without_the_other_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    with pytest.raises(SystemExit):
        main(["doctor"])
    out = capsys.readouterr().out
    assert "missing: pip install sooner-miniatures" in out
    assert "missing: pip install sooner-lab" in out
