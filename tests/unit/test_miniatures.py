"""The small public face of the bundled miniatures."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sooner import miniatures, plugins
from sooner.errors import SoonerError


def test_lookup_by_name() -> None:
    video = miniatures.find("video")
    assert video.name == "video"
    assert video.target != video.draft
    for folder in (video.target, video.draft):
        assert folder is not None
        assert (folder / "model.safetensors").is_file()
        assert (folder / "card.json").is_file()


def test_unknown_name_gets_a_hint() -> None:
    with pytest.raises(ValueError, match=r"'vidoe'.*did you mean 'video'"):
        miniatures.find("vidoe")
    with pytest.raises(ValueError, match="known: document, image, motion, needle, robot, video"):
        miniatures.find("zzz")


@pytest.mark.lab
def test_the_world_of_a_miniature_adds_its_functions() -> None:
    assert miniatures.find("robot").function("ask").__name__ == "ask"
    with pytest.raises(SoonerError, match="'robot' miniature has no 'clip' of its own; give files"):
        miniatures.find("robot").function("clip")


def test_without_the_lab_a_miniature_has_no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = plugins.plugins("sooner.miniatures")
    monkeypatch.setattr(
        miniatures, "plugins", lambda group: bundled if group == "sooner.miniatures" else ()
    )
    video = miniatures.find("video")
    with pytest.raises(SoonerError, match="or `pip install sooner-lab`"):
        video.function("clip")


def test_finding_imports_no_torch() -> None:
    code = (
        "import sys, sooner.miniatures as m; m.find('video'); m.names(); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
