"""The robot recipe: demonstrations that are the experts' answers, training inputs that are the
processor's. All in the world without a simulator."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sooner.models.openvla.processing import OpenVLAProcessor
from sooner.models.openvla.statistics import ActionTokens
from sooner.robots.table import TableEnvironment
from sooner_lab.worlds.robot import architecture, collect, data, losses, words
from sooner_lab.worlds.robot.questions import ROWS, ask_demonstrations

SHAPE = architecture.RobotShape(4, 32, 2, 32, 1, 16, 2)


@pytest.fixture(scope="module")
def records() -> dict[str, np.ndarray]:
    made = list(islice(collect.demonstrate("table", 5), 40))
    return {
        "pictures": np.stack([step.picture for step in made]),
        "tasks": np.array([step.task for step in made]),
        "actions": np.stack([step.actions for step in made]).astype(np.float32),
        "points": np.stack([step.points for step in made]).astype(np.float32),
        "places": np.stack([step.places for step in made]).astype(np.float32),
    }


def test_a_demonstration_is_the_expert_s_answer(records: dict[str, np.ndarray]) -> None:
    """Its first action follows from where hand and ball are; disturbed moments included."""
    world = TableEnvironment()
    for hand, goal, actions in zip(
        records["points"][:, 0], records["points"][:, 1], records["actions"], strict=True
    ):
        world.hand, world.goal = hand, goal
        assert np.allclose(actions[0], world.expert_action(), atol=1e-6)


def test_demonstrations_differ_from_an_undisturbed_episode(records: dict[str, np.ndarray]) -> None:
    """Somebody pushed the hand: it moved between records by more than the expert's two steps."""
    moved = np.diff(records["points"][:, 0], axis=0)
    expected = records["actions"][:-1, :, :3].sum(1)
    same_goal = (np.diff(records["points"][:, 1], axis=0) == 0).all(1)
    off = np.abs(moved - expected).max(1)[same_goal]
    assert (off < 1e-6).any()
    assert (off > 0.005).any()


def test_finished_shards_are_not_made_again(tmp_path: Path) -> None:
    collect.collect(tmp_path, "table", 6, seed=1)
    file = tmp_path / "table-000.npz"
    before = file.stat().st_mtime_ns
    collect.collect(tmp_path, "table", 6, seed=1)
    assert file.stat().st_mtime_ns == before
    assert len(collect.load(tmp_path)["tasks"]) == 6


def test_training_reads_what_the_processor_will_write(records: dict[str, np.ndarray]) -> None:
    """Token for token and pixel for pixel, or the policy would meet strangers."""
    stats = architecture.statistics(records["actions"])
    batch = data.Reader(records, stats).batch(np.arange(3))
    config = architecture.build_config(SHAPE, stats)
    processor = OpenVLAProcessor.of(words.build_tokenizer(), config)
    made = processor(list(records["pictures"][:3]), ["reach the blue ball"] * 3)
    count = batch.bins.shape[1]
    assert torch.equal(batch.ids[:, :-count], made["input_ids"])
    assert torch.allclose(batch.pixels, made["pixel_values"], atol=1e-5)


def test_labels_are_the_nearest_bins(records: dict[str, np.ndarray]) -> None:
    stats = architecture.statistics(records["actions"])
    reader = data.Reader(records, stats)
    tokens = ActionTokens(words.TEXT + words.ACTIONS, words.ACTIONS)
    back = tokens.decode(reader.ids)
    assert np.abs(back - reader.actions).max() <= tokens.width / 2 + 1e-6


def test_soft_labels_are_distributions_over_actions() -> None:
    ids = torch.tensor([[words.TEXT, words.TEXT + 100, words.TEXT + words.ACTIONS - 1]])
    soft = losses.soft_labels(ids, words.VOCABULARY)
    assert torch.allclose(soft.sum(-1), torch.ones(1, 3))
    assert torch.equal(soft.argmax(-1), ids)
    assert soft[..., : words.TEXT].sum() == 0
    assert soft[..., words.TEXT + words.ACTIONS :].sum() == 0


def test_vocabulary_is_laid_out_as_openvla_s() -> None:
    tokens = words.vocabulary()
    assert len(tokens) == len(set(tokens)) == words.TEXT + words.ACTIONS
    assert tokens[-1] == "<action 0>"
    assert tokens[words.TEXT] == f"<action {words.ACTIONS - 1}>"
    ids = words.build_tokenizer()("in: open the Drawer").input_ids
    assert ids[0] == words.SPECIALS.index(words.START)
    assert words.SPECIALS.index(words.UNKNOWN) not in ids


def test_a_robot_is_questioned_by_its_experts() -> None:
    calls: list[tuple[int, set[str]]] = []

    def processor(pictures: list, instructions: list[str]) -> dict[str, Any]:
        calls.append((len(pictures), set(instructions)))
        return {}

    assert len(list(ask_demonstrations(processor, ROWS + 1, ("table",)))) == 2
    assert calls == [(ROWS, {"reach the blue ball"})] * 2
