"""LIBERO (Liu et al. 2023) through `hf-libero`: four suites of ten tasks for a Panda arm.

The protocol is that of OpenVLA's own evaluation (`experiments/robot/libero` in its repository): an
environment per task, seeded once with 0 when it is made; the suite's recorded starts in order; ten
steps of nothing while objects settle; the camera's picture turned by half a turn, sent through JPEG
and scaled to 224 x 224 as the training data was; its middle nine tenths (policies are fine-tuned on
random crops of that share), scaled up again; and a gripper that policies say as 1 for open where
the simulator wants -1.

Assets of the suites are fetched by `hf-libero` itself. None could be had where this was written, so
it has run against a stand-in of the package's interface alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sooner.errors import SoonerError, unknown
from sooner.robots import StepResult

from .metaworld import headless
from .openvla_pictures import as_trained, middle

SETTLE = 10
SEED = 0
"""Seed of the environment: objects are placed by it even where a recorded start state is set."""
SIDE = 256
STILL = np.array([0, 0, 0, 0, 0, 0, -1.0])


@dataclass(frozen=True)
class Suite:
    """A suite of tasks: `hf-libero`'s name, and actions of an episode."""

    name: str
    max_steps: int


SUITES = {
    "goal": Suite("libero_goal", 300),
    "object": Suite("libero_object", 280),
    "spatial": Suite("libero_spatial", 220),
    "long": Suite("libero_10", 520),
}


class Libero:
    """One task of a suite.

    Args:
        suite: one of `SUITES`.
        task: its number there, from 0.

    Raises:
        SoonerError: an unknown suite or task, or `hf-libero` is not installed.
    """

    action_low: ClassVar[np.ndarray] = -np.ones(7)
    action_high: ClassVar[np.ndarray] = np.ones(7)

    def __init__(self, suite: str, task: int) -> None:
        if suite not in SUITES:
            raise unknown("LIBERO suite", suite, SUITES)
        tasks = _benchmark(SUITES[suite].name)
        if not 0 <= task < tasks.get_num_tasks():
            raise SoonerError(
                f"LIBERO {suite} has tasks 0 to {tasks.get_num_tasks() - 1}, not {task}"
            )
        self.name = f"libero-{suite}/{task}"
        self.instruction = tasks.get_task(task).language
        self.max_steps = SUITES[suite].max_steps
        self._starts = tasks.get_task_init_states(task)
        self._env = _make(tasks.get_task_bddl_file_path(task))
        self._env.seed(SEED)
        self._seen: Any = None
        self._done = 0

    def reset(self, seed: int) -> None:
        """Start number `seed` of the suite's recorded ones, again from the first after the last."""
        self._env.reset()
        self._seen = self._env.set_init_state(self._starts[seed % len(self._starts)])
        for _ in range(SETTLE):
            self._seen, *_ = self._env.step(STILL.tolist())
        self._done = 0

    def picture(self) -> np.ndarray:
        """What the policy sees, `[224, 224, 3]` uint8."""
        return middle(as_trained(self.film_frame()))

    def film_frame(self) -> np.ndarray:
        return np.ascontiguousarray(self._seen["agentview_image"][::-1, ::-1])

    def step(self, action: np.ndarray) -> StepResult:
        clipped = np.clip(action, self.action_low, self.action_high)
        # Policies say 0 for closed and 1 for open; the simulator takes 1 for closed, -1 for open.
        clipped[-1] = -1.0 if action[-1] > 0.5 else 1.0
        self._seen, _, done, _ = self._env.step(clipped.tolist())
        self._done += 1
        return StepResult(bool(done), bool(done) or self._done >= self.max_steps)

    def close(self) -> None:
        self._env.close()


def _benchmark(name: str) -> Any:
    headless()
    try:
        from libero.libero import benchmark
    except ImportError as error:
        raise SoonerError(
            "LIBERO is not installed; pip install hf-libero (Linux, and it fetches its assets)"
        ) from error
    return benchmark.get_benchmark_dict()[name]()


def _make(file: str) -> Any:
    from libero.libero.envs import OffScreenRenderEnv

    return OffScreenRenderEnv(bddl_file_name=file, camera_heights=SIDE, camera_widths=SIDE)
