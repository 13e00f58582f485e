"""A stand-in for robosuite: a hand that moves as it is told towards a thing it should close on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sooner.robots.environment import StepResult
from sooner.tasks.act.policy import Policy, load
from sooner_lab.worlds.arm import gauges, rollouts
from sooner_lab.worlds.arm.collect import KEYS
from sooner_lab.worlds.arm.recipe import ArmHeadRecipe, ArmRecipe, ArmStage
from sooner_lab.worlds.arm.simulator import TASKS, ArmState
from sooner_lab.worlds.arm.train import train
from sooner_lab.worlds.robot.architecture import RobotShape

LONGEST = 6
TINY = ArmRecipe(
    RobotShape(2, 64, 2, 96, 1, 32, 2),
    (ArmStage(40, 16, 3e-3),),
    episodes=dict.fromkeys(TASKS, 6),
    held=2,
    check_every=0,
)
TINY_HEAD = ArmHeadRecipe(
    episodes=2,
    settings={"steps": 10, "lr": 1e-3, "batch": 8, "warmup": 2, "check_every": 100},
)


class StubArm:
    """Has what a rollout uses of `simulator.ArmEnvironment`; seeds below 0 never succeed."""

    def __init__(self, name: str) -> None:
        self.name, self.instruction, self.taken = name, TASKS[name].instruction, 0

    def reset(self, seed: int) -> None:
        self.seed, self.taken = seed, 0
        self.hand = np.random.default_rng([abs(seed), 7]).uniform(-0.1, 0.1, 3)

    def state(self) -> ArmState:
        return ArmState(self.hand + gauges.CENTRE, 0.05, gauges.CENTRE, np.zeros(3), np.zeros(3))

    def step(self, action: np.ndarray) -> StepResult:
        self.hand = self.hand + 0.02 * action[:3]
        self.taken += 1
        over = self.taken >= LONGEST
        return StepResult(over and self.seed >= 0, over)

    def close(self) -> None:
        pass


def fake_records(folder: Path, steps: int = 12, episodes: int = 6) -> None:
    """Demonstrations of random states whose action follows from what the gauges show."""
    folder.mkdir(parents=True)
    for number, name in enumerate(gauges.ORDER):
        rng = np.random.default_rng(number)
        seen = rng.uniform(-0.9, 0.9, (episodes * steps, gauges.NUMBERS)).astype(np.float32)
        actions = np.concatenate([seen[:, :6], np.sign(seen[:, 6:7])], axis=1)
        found = {
            "numbers": seen,
            "tasks": np.full(len(seen), number),
            "actions": actions,
            "episodes": np.repeat(np.arange(episodes), steps),
        }
        np.savez(folder / f"{name}.npz", **{key: found[key] for key in KEYS})


def trained(out: Path) -> Path:
    """A tiny target and its head in `out`, trained on made-up records, without a simulator."""
    fake_records(out / "target" / "data")
    train(out / "target", TINY, progress=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollouts, "ArmEnvironment", StubArm)
        train(out / "head", TINY_HEAD, progress=False)
    return out


def policy_of(out: Path) -> Policy:
    """The policy that `trained` wrote."""
    folders = out / "target" / "checkpoint", out / "head" / "head"
    return load(str(folders[0]), str(folders[1]), dtype="float32")
