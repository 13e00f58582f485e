"""Three tasks of robosuite (Zhu et al. 2020): a Panda that lifts a cube, opens a door, puts a nut
on its peg.

Actions are robosuite's OSC_POSE: `(dx, dy, dz, rx, ry, rz, gripper)`, each in [-1, 1]: at 1 the
hand's goal moves by 5 cm or turns by 0.5 rad in a step of 1/20 s, and the fingers close above 0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.transform import Rotation

from sooner.errors import SoonerError, unknown
from sooner.robots.environment import StepResult

NAMES = ("dx", "dy", "dz", "rx", "ry", "rz", "gripper")
DOWN = np.array([0.0, 0.0, -1.0])
NUT_HANDLE = np.array([0.054, 0.0, 0.0])
"""From the nut's middle, in metres along its own axes."""
NEEDED = ("robosuite", "mujoco", "numba")


@dataclass(frozen=True)
class ArmTask:
    """A task, and what the policy is told.

    Attributes:
        environment: robosuite's name.
        instruction: what the policy is told.
        max_steps: actions of an episode; the experts need about half.
    """

    environment: str
    instruction: str
    max_steps: int


TASKS = {
    "lift": ArmTask("Lift", "pick up the cube", 120),
    "door": ArmTask("Door", "open the door", 200),
    "nut": ArmTask("NutAssemblySquare", "put the nut on the peg", 240),
}


@dataclass(frozen=True)
class ArmState:
    """Where everything is, in metres and radians of the world.

    Attributes:
        hand: between the finger tips, `[3]`.
        opening: between the fingers.
        grip: what the fingers should close on, `[3]`.
        turn: rotation vector that brings the hand to lie there as it should, `[3]`.
        thing: what the task is judged by, `[3]`: the cube's and the nut's way from where they
            belong; of the door `(hinge, latch, 0)` in radians.
        thing_yaw: of the nut, from the nearest of four ways that fit the peg, in [-pi/4, pi/4).
    """

    hand: np.ndarray
    opening: float
    grip: np.ndarray
    turn: np.ndarray
    thing: np.ndarray
    thing_yaw: float = 0.0


def wrapped(angle: float, period: float) -> float:
    """`angle` in [-period / 2, period / 2)."""
    return (angle + period / 2) % period - period / 2


def require_installed() -> None:
    """See that robosuite is there, without importing it.

    Raises:
        SoonerError: it is not; says how to get it.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SoonerError(
            f"the world of the arm needs {', '.join(missing)}; pip install --no-deps robosuite "
            "numba llvmlite termcolor (one of its dependencies asks for an old numpy, and is not "
            "needed here) beside 'sooner[robots]'"
        )


class ArmEnvironment:
    """One of `TASKS`.

    Args:
        name: such as `lift`.

    Raises:
        SoonerError: an unknown task, or robosuite is not installed.
    """

    action_names: ClassVar[tuple[str, ...]] = NAMES
    action_units: ClassVar[tuple[str, ...]] = ("",) * len(NAMES)
    action_low: ClassVar[np.ndarray] = -np.ones(len(NAMES))
    action_high: ClassVar[np.ndarray] = np.ones(len(NAMES))

    def __init__(self, name: str) -> None:
        if name not in TASKS:
            raise unknown("task", name, TASKS)
        require_installed()
        self.task = TASKS[name]
        self.name, self.instruction = name, self.task.instruction
        self.max_steps = self.task.max_steps
        self._env = _make(self.task)
        self._done = 0

    def reset(self, seed: int) -> None:
        """A new episode: the same seed gives the same one."""
        rng = np.random.default_rng(seed)
        self._env.rng = rng
        sampler = self._env.placement_initializer
        for one in (sampler, *getattr(sampler, "samplers", {}).values()):
            one.rng = rng
        self._env.reset()
        self._done = 0

    def step(self, action: np.ndarray) -> StepResult:
        """Take one action `[7]`, clipped to its range."""
        self._env.step(np.clip(action, -1, 1))
        self._done += 1
        success = bool(self._env._check_success())
        return StepResult(success, success or self._done >= self.max_steps)

    def state(self) -> ArmState:
        """Where everything is now."""
        env, data = self._env, self._env.sim.data
        robot = env.robots[0]
        site = robot.eef_site_id["right"]
        pointing = data.site_xmat[site].reshape(3, 3)[:, 2]
        fingers = robot.gripper["right"].important_geoms
        left, right = (
            np.mean([data.get_geom_xpos(name) for name in fingers[side]], axis=0)
            for side in ("left_fingerpad", "right_fingerpad")
        )
        seen = getattr(self, f"_{self.name}")(env, data)
        return ArmState(
            np.array(data.site_xpos[site]),
            float(np.linalg.norm(right - left)),
            seen.place,
            _turn(_frame(right - left, pointing), _frame(seen.across, seen.pointing)),
            seen.thing,
            seen.thing_yaw,
        )

    def close(self) -> None:
        self._env.close()

    def _lift(self, env: Any, data: Any) -> _Seen:
        cube = np.array(data.body_xpos[env.cube_body_id])
        side = data.body_xmat[env.cube_body_id].reshape(3, 3)[:, 0]
        # Of the four ways across the cube, the one along which the hand lies at first.
        yaw = math.pi / 2 + wrapped(math.atan2(side[1], side[0]), math.pi / 2)
        table = float(env.model.mujoco_arena.table_offset[2])
        return _Seen(cube, _level(yaw), DOWN, np.array([0.0, 0.0, cube[2] - table]))

    def _door(self, env: Any, data: Any) -> _Seen:
        handle = np.array(data.site_xpos[env.door_handle_site_id])
        hinge = float(data.qpos[env.hinge_qpos_addr])
        latch = float(data.qpos[env.handle_qpos_addr])
        lever = data.body_xmat[env.object_body_ids["latch"]].reshape(3, 3)
        return _Seen(handle, lever[:, 2], lever[:, 1], np.array([hinge, latch, 0.0]))

    def _nut(self, env: Any, data: Any) -> _Seen:
        body = env.obj_body_id["SquareNut"]
        nut = np.array(data.body_xpos[body])
        turn = data.body_xmat[body].reshape(3, 3)
        peg = data.body_xpos[env.peg1_body_id]
        off = np.array([nut[0] - peg[0], nut[1] - peg[1], nut[2] - float(env.table_offset[2])])
        yaw = math.atan2(turn[1, 1], turn[0, 1])
        return _Seen(nut + turn @ NUT_HANDLE, turn[:, 1], DOWN, off, wrapped(yaw, math.pi / 2))


@dataclass(frozen=True)
class _Seen:
    """How the hand should lie: `place` `[3]`, the line `across` between the fingers and the way
    that they are `pointing`, both `[3]`; the rest as in `ArmState`."""

    place: np.ndarray
    across: np.ndarray
    pointing: np.ndarray
    thing: np.ndarray
    thing_yaw: float = 0.0


def _level(yaw: float) -> np.ndarray:
    return np.array([math.cos(yaw), math.sin(yaw), 0.0])


def _frame(across: np.ndarray, pointing: np.ndarray) -> np.ndarray:
    """The rotation whose first axis is about `across`, whose third is `pointing`, `[3, 3]`."""
    third = pointing / np.linalg.norm(pointing)
    first = across - third * (across @ third)
    first = first / np.linalg.norm(first)
    return np.stack([first, np.cross(third, first), third], axis=1)


def _turn(now: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The smaller rotation vector between two frames; turned by pi, fingers lie as before."""
    back = wanted * np.array([-1.0, -1.0, 1.0])
    found = [Rotation.from_matrix(one @ now.T).as_rotvec() for one in (wanted, back)]
    return np.asarray(min(found, key=lambda one: float(np.linalg.norm(one))))


def _make(task: ArmTask) -> Any:
    with _quiet():
        import robosuite
        from robosuite.controllers import load_composite_controller_config

        return robosuite.make(
            task.environment,
            robots="Panda",
            controller_configs=load_composite_controller_config(robot="Panda"),
            has_renderer=False,
            has_offscreen_renderer=False,
            use_camera_obs=False,
            use_object_obs=False,
            control_freq=20,
            horizon=1_000_000,  # episodes end here, not there
            ignore_done=True,
            hard_reset=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without robosuite's notes on macros and robots that nobody asked for."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
