"""The small public face of the bundled miniatures."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sooner import miniatures


def test_found_by_name() -> None:
    video = miniatures.find("video")
    assert video.name == "video"
    assert video.target != video.draft
    for folder in (video.target, video.draft):
        assert folder is not None
        assert (folder / "model.safetensors").is_file()
        assert (folder / "card.json").is_file()
    assert all(path.is_file() for path in video.parts.values())


def test_unknown_name_gets_a_hint() -> None:
    with pytest.raises(ValueError, match=r"'vidoe'.*did you mean 'video'"):
        miniatures.find("vidoe")
    with pytest.raises(ValueError, match="known: document, image, motion, robot, video"):
        miniatures.find("zzz")


def test_prompt_is_the_one_trained_on() -> None:
    from sooner_lab.worlds.video import words

    assert miniatures.find("video").prompt == words.PROMPT


def test_finding_imports_no_torch() -> None:
    code = (
        "import sys, sooner.miniatures as m; m.find('video'); m.names(); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_weights_stay_small() -> None:
    video = miniatures.find("video")
    sizes = [
        sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        for folder in (video.target, video.draft)
        if folder is not None
    ]
    assert sizes[0] < 10
    assert sizes[1] < 2
