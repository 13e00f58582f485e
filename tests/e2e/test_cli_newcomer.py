"""What somebody who is new does wrong on the command line is answered with the right command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tiny
from commands import Run
from serve.spoken import byte_level
from sooner import checkpoints
from sooner.cli.main import app
from sooner.errors import SoonerError
from sooner.methods import trained
from sooner.models import model_types
from sooner.tasks.loading import load_pair
from sooner.tasks.parse.parser import load_parser

README = Path(__file__).parents[2] / "README.md"


def fails(run: Run, *arguments: object) -> str:
    """The one line by which a command line is refused."""
    done = run(*arguments)
    assert done.code == 2
    return done.errors[-1]


@pytest.fixture
def text_model(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    tiny.model("qwen2", vocab=512).save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


def test_a_file_for_another_command_names_that_command(run: Run, tmp_path: Path) -> None:
    for name in ("x.mp4", "x.webm"):
        (tmp_path / name).write_bytes(b"")
        line = fails(run, "parse", tmp_path / name, "-o", tmp_path / "out")
        assert line.endswith(f"is a video; caption it: sooner caption {tmp_path / name}")
        assert ".bmp" not in line
    for name in ("x.pdf", "x.png"):
        (tmp_path / name).write_bytes(b"")
        line = fails(run, "caption", tmp_path / name, "--model", "org/any")
        assert f"sooner parse {tmp_path / name}" in line
    (tmp_path / "x.txt").write_bytes(b"")
    assert "no document by its name" in fails(run, "parse", tmp_path / "x.txt", "-o", "out")


@pytest.mark.parametrize("load", [load_pair, load_parser])
def test_a_refusal_of_a_text_model_names_models_that_see(load: Any, text_model: Path) -> None:
    with pytest.raises(SoonerError, match=r"reads text only; .* qwen2_5_vl, ") as caught:
        load(str(text_model))
    assert "openvla" not in str(caught.value)
    assert "chameleon" not in str(caught.value)


class Silent:
    """A hub's client without a network."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, float]] = []

    def head(self, url: str, timeout: float) -> None:
        self.requests.append((url, timeout))
        raise ConnectionError("Name or service not known")


def test_without_a_network_an_unknown_model_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hub's own client, which tries again and again, is not asked at all."""

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("it tries for half a minute")

    client = Silent()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: client)
    monkeypatch.setattr(model_types.PreTrainedConfig, "get_config_dict", never)
    monkeypatch.setattr("huggingface_hub.snapshot_download", never)
    with pytest.raises(SoonerError, match="'org/unknown' is no folder here, and the model hub can"):
        model_types.config_dict("org/unknown")
    with pytest.raises(SoonerError, match="drafter 'org/head' is no folder here, and the model hu"):
        trained.find_folder("org/head")
    monkeypatch.setattr(model_types, "installed", lambda: ["smollm2"])
    with pytest.raises(SoonerError, match=r"'smolm2' is no folder .*mean 'smollm2'\?\), and the"):
        model_types.config_dict("smolm2")
    assert [seconds for _, seconds in client.requests] == [checkpoints.HUB_SECONDS] * 3


def test_shells_can_complete() -> None:
    output = CliRunner().invoke(app, ["--help"]).output
    assert "--install-completion" in output


def test_a_drafter_is_located_where_its_training_left_it(tmp_path: Path) -> None:
    head = tmp_path / "out" / "head"
    head.mkdir(parents=True)
    (head / "config.json").write_text("{}")
    (tmp_path / "out" / "data").mkdir()
    assert trained.find_folder(tmp_path / "out") == head
    assert trained.find_folder(str(head)) == head
    assert trained.find_folder(tmp_path) == tmp_path  # nothing in it: the error names it
    (head / "config.json").write_text("[]")
    with pytest.raises(SoonerError, match=r"no readable config\.json"):
        model_types.config_dict(str(head))
    with pytest.raises(SoonerError, match=r"'no name/head' is no folder.*check the name"):
        trained.find_folder("no name/head")


@pytest.mark.lab
def test_the_first_request_of_the_readme_shows_the_bundled_clip() -> None:
    from sooner.miniatures import sample_of

    text = README.read_text(encoding="utf-8")
    [body] = re.findall(r"^curl \S+/v1/chat/completions -d '(.*?)'$", text, re.M | re.S)
    [message] = json.loads(body)["messages"]
    [video, words] = message["content"]
    assert video["video_url"]["url"] == sample_of("video").name
    assert words["text"] == "describe the scenes in order ."
