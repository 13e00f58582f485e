"""Meta-World (Yu et al. 2020) on MuJoCo: a Sawyer arm over a table, told what to do.

Actions are `(dx, dy, dz, gripper)`: metres that the hand's goal moves, at most a centimetre each,
and the effort of the fingers in [-1, 1], which close above 0. Objects and goals are drawn anew from
the task's own space for every seed.
"""

from __future__ import annotations

import os
import sys
import warnings
from ctypes.util import find_library
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from sooner.errors import SoonerError, unknown
from sooner.robots import StepResult

from .views import SceneRenderer

SCALE = np.array([0.01, 0.01, 0.01, 1.0])
"""Metres and gripper effort of 1 in Meta-World's own action."""


@dataclass(frozen=True)
class MetaWorldTask:
    """A task of Meta-World, and what the policy is told.

    Attributes:
        environment: Meta-World's name.
        instruction: what the policy is told.
        max_steps: actions of an episode. Meta-World's own limit is 500, its experts need under 100.
    """

    environment: str
    instruction: str
    max_steps: int


TASKS = {
    "reach": MetaWorldTask("reach-v3", "reach the red ball", 200),
    "push": MetaWorldTask("push-v3", "push the block to the green ball", 200),
    "drawer-open": MetaWorldTask("drawer-open-v3", "open the drawer", 200),
}


LIBRARIES = {"osmesa": "OSMesa", "egl": "EGL"}
"""MuJoCo's offscreen renderers (`MUJOCO_GL`), and the system library that each needs."""


def headless() -> None:
    """Render in memory where there is no screen. MuJoCo reads this when it is first imported."""
    if "MUJOCO_GL" not in os.environ and "DISPLAY" not in os.environ and sys.platform == "linux":
        there = [name for name, library in LIBRARIES.items() if find_library(library)]
        os.environ["MUJOCO_GL"] = there[0] if there else "osmesa"


def require_installed(name: str) -> None:
    """See that task `name` could run, without importing anything large.

    Raises:
        SoonerError: a package or the library that renders is missing.
    """
    missing = [package for package in ("metaworld", "mujoco") if find_spec(package) is None]
    if missing:
        raise SoonerError(
            f"environment '{name}' needs {' and '.join(missing)}; pip install 'sooner[robots]', or "
            "name another environment, such as table"
        )
    headless()
    library = LIBRARIES.get(os.environ.get("MUJOCO_GL", ""))
    if library is not None and find_library(library) is None:
        raise SoonerError(
            f"environment '{name}' can't render without a screen: library {library} is missing; "
            "install libosmesa6 or libegl1, or name another environment, such as table"
        )


class MetaWorld:
    """One of `TASKS`.

    Args:
        name: such as `reach`.

    Raises:
        SoonerError: an unknown task, or Meta-World is not installed.
    """

    action_low: ClassVar[np.ndarray] = -SCALE
    action_high: ClassVar[np.ndarray] = SCALE

    def __init__(self, name: str) -> None:
        if name not in TASKS:
            raise unknown("task", name, TASKS)
        task = TASKS[name]
        self.name, self.instruction, self.max_steps = name, task.instruction, task.max_steps
        require_installed(name)
        self._env = _make(task.environment)
        self._views = SceneRenderer(self._env.model, self._env.data)
        self._seen: np.ndarray = np.zeros(39)
        self._done = 0

    def reset(self, seed: int) -> None:
        self._env.seed(seed)
        self._seen, _ = self._env.reset()
        self._views.settle()  # things were moved, but are not yet where they are drawn
        self._seen = self._env._get_obs()
        self._done = 0

    def picture(self) -> np.ndarray:
        return self._views.picture()

    def film_frame(self) -> np.ndarray:
        return self._views.film_frame()

    def step(self, action: np.ndarray) -> StepResult:
        clipped = np.clip(action / SCALE, -1, 1).astype(np.float32)
        self._seen, _, _, _, info = self._env.step(clipped)
        self._done += 1
        success = bool(info["success"])
        return StepResult(success, success or self._done >= self.max_steps)

    def expert_action(self) -> np.ndarray:
        """What Meta-World's scripted policy would do now, `[4]`."""
        with warnings.catch_warnings(action="ignore"):  # that it asks for more than 1
            action = _expert(TASKS[self.name].environment).get_action(self._seen)
        return SCALE * np.clip(action, -1, 1)

    def close(self) -> None:
        self._views.close()
        self._env.close()


def _make(name: str) -> Any:
    try:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    except (ImportError, AttributeError) as error:  # the latter is PyOpenGL without a library
        raise SoonerError(
            f"Meta-World can't be imported ({error}); pip install 'sooner[robots]', and libosmesa6 "
            "or libegl1 for rendering without a screen"
        ) from error
    env = ALL_V3_ENVIRONMENTS[name]()
    env._partially_observable = False  # the expert is told the goal; the policy has to see it
    env.__dict__.pop("sawyer_observation_space", None)  # made while the goal was hidden
    env._set_task_called = True
    env._freeze_rand_vec = False
    env.seeded_rand_vec = True
    env.max_path_length = 100_000  # episodes end here, not there
    return env


def _expert(name: str) -> Any:
    from metaworld.policies import ENV_POLICY_MAP

    policies: Any = ENV_POLICY_MAP
    return policies[name]()
