"""Rows that a target prunes: the same tokens as when it serves, and only where rows are long."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.worlds.video import architecture, bank, build, data, evaluate, losses
from sooner_lab.worlds.video.pacing import ScenePacing
from sooner_lab.worlds.video.ranking import SHORT, Ranker
from sooner_lab.worlds.video.recipe import VideoRecipe, VideoStage
from sooner_lab.worlds.video.train import train

TINY = architecture.VideoShape(3, 32, 2, 1, 64, 192, 1, 32, 2)
LONG = ScenePacing(0.0, 1.0, 0.0, 0.0, maximum=24)
ROW = VideoRecipe(
    shape=TINY,
    stages=(
        VideoStage("language", 2, 900, 1e-3, scenes=(2, 2), pace=LONG, pruned=1.0, ranked=True),
    ),
    bank=8,
    check_every=0,
    ranker="../target/checkpoint",
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random target of nine layers, so that three of them rank."""
    folder = tmp_path_factory.mktemp("target") / "checkpoint"
    torch.manual_seed(3)
    build.save(architecture.build_model(dataclasses.replace(TINY, layers=9)), folder)
    return folder


def test_a_ranker_sees_the_drafts_scenes(target: Path) -> None:
    """Its bank is of the same scenes, moments and noise, through its own tower."""
    ranker, writer = Ranker(target), data.CaptionRowWriter()
    ranker.enter(writer, 8, (0, 0))
    assert ranker.bank is not None
    other = bank.encode(architecture.build_model(TINY), writer, 8, (0, 0))
    assert ranker.bank.scenes == other.scenes
    assert ranker.bank.sentences == other.sentences
    assert not torch.equal(ranker.bank.features, other.features)
    again = bank.encode(evaluate.load(target)[0], writer, 8, (0, 0))
    assert torch.equal(ranker.bank.features, again.features)


def test_only_long_rows_are_pruned(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int | None]] = []
    predict = losses.predict

    def watch(model, batch, features, first, bf16, places=None):  # type: ignore[no-untyped-def]
        visual = features.shape[1] + 1
        seen.append((visual, None if places is None else places.shape[1] - batch.ids.shape[1]))
        return predict(model, batch, features, first, bf16, places)

    monkeypatch.setattr(losses, "predict", watch)
    stage = dataclasses.replace(ROW.stages[0], steps=12)
    config = dataclasses.replace(ROW, stages=(stage,))
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "checkpoint").symlink_to(target)
    train(tmp_path / "draft", config, progress=False, stop_after=11)
    assert {visual > SHORT for visual, _ in seen} == {True, False}
    for visual, change in seen:
        if visual <= SHORT:
            assert change is None
        else:
            assert change is not None
            assert -0.96 * visual < change < -0.69 * visual


def test_pruned_rows_resume_to_the_same_weights(target: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(ROW, ranker=str(target))
    for folder, steps in (("whole", (1,)), ("parts", (0, 1))):
        for count in steps:
            train(tmp_path / folder, config, progress=False, stop_after=count)
    states = [
        torch.load(tmp_path / folder / "state.pt", weights_only=True)["model"]
        for folder in ("whole", "parts")
    ]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_a_missing_target_gets_a_single_line(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match=r"target/checkpoint' to rank tokens with; train that"):
        train(tmp_path / "draft", ROW, progress=False)
