"""The other subcommands: verify, doctor, train, and usage errors of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from commands import Run
from sooner import __version__
from sooner.cli.main import app


@pytest.mark.parametrize("method", ["plain", "prompt-lookup", "speculative"])
def test_verify(
    run: Run, clip: Path, target_folder: Path, poor_folder: Path, tmp_path: Path, method: str
) -> None:
    report = tmp_path / "report.json"
    done = run(
        "verify", clip, "--method", method, "--model", target_folder, "--draft", poor_folder,
        "--frames", 4, "--max-new-tokens", 12, "--json", report,
    )  # fmt: skip
    assert done.code == 0
    assert f"{method} (exact): identical, 12 tokens" in done.out
    (record,) = json.loads(report.read_text())
    assert record["verdict"] == "identical"
    assert record["candidate_ids"] == record["reference_ids"]
    assert len(record["candidate_ids"]) == 12


def test_verify_exits_with_1_on_a_bug(
    run: Run, clip: Path, target_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that changes one token is caught."""
    from sooner.tasks import caption

    real = caption.run

    def altered(*args: object, **kwargs: object) -> tuple:
        made, text = real(*args, **kwargs)  # type: ignore[arg-type]
        made.tokens[0][5] = (made.tokens[0][5] + 1) % 100
        return made, text

    monkeypatch.setattr(caption, "run", altered)
    done = run("verify", clip, "--model", target_folder, "--frames", 4, "--max-new-tokens", 8)
    assert done.code == 1
    assert "bug: token 5 is" in done.out
    assert "top-2 gap" in done.out


def test_doctor(run: Run) -> None:
    done = run("doctor")
    assert done.code == 0
    for phrase in (__version__, torch.__version__, "threads", "video", "extras", "dev"):
        assert phrase in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["captoin", "a.mp4"], "captoin"),
        (["caption", "a.mp4", "--comparee"], "--compare"),
        (["verify"], "no video given"),
    ],
)
def test_wrong_use(run: Run, arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""


def test_interrupt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sooner.cli.doctor.versions", interrupted)
    assert run("doctor").code == 130


@pytest.mark.parametrize(
    ("command", "extra"),
    [("demo", "demo"), ("serve", "ray"), ("parse", "ray"), ("act rollout", "robots")],
)
def test_help_names_extras(command: str, extra: str) -> None:
    """Brackets are no markup in it."""
    result = CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=300)
    assert f"sooner[{extra}]" in result.output.replace("\n", "")
