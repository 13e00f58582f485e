"""LIBERO's protocol, against a stand-in with the interface of `hf-libero`."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner.robots.registry import make


class FakeEnv:
    def __init__(self, **options: Any) -> None:
        self.options = options
        self.log: list[Any] = []
        self.closed = False

    def seed(self, seed: int) -> None:
        self.log.append(("seed", seed))

    def reset(self) -> dict[str, Any]:
        self.log.append("reset")
        return self._seen(0)

    def set_init_state(self, state: int) -> dict[str, Any]:
        self.log.append(("start", state))
        return self._seen(0)

    def step(self, action: list[float]) -> tuple:
        self.log.append(list(action))
        return self._seen(len(self.log)), 0.0, action[0] == 0.5, {}

    def close(self) -> None:
        self.closed = True

    def _seen(self, value: int) -> dict[str, Any]:
        picture = np.zeros((256, 256, 3), np.uint8)
        picture[0, 0] = value % 256
        return {"agentview_image": picture}


class FakeSuite:
    def get_num_tasks(self) -> int:
        return 10

    def get_task(self, number: int) -> Any:
        return SimpleNamespace(language=f"do {number}")

    def get_task_init_states(self, number: int) -> list[int]:
        return [100, 101, 102]

    def get_task_bddl_file_path(self, number: int) -> str:
        return f"{number}.bddl"


@pytest.fixture(autouse=True)
def libero(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("libero", "libero.libero", "libero.libero.benchmark", "libero.libero.envs")
    modules = {name: ModuleType(name) for name in names}
    suites = ("libero_goal", "libero_object", "libero_spatial", "libero_10")
    modules[names[2]].get_benchmark_dict = lambda: dict.fromkeys(suites, FakeSuite)  # type: ignore[attr-defined]
    modules[names[1]].benchmark = modules[names[2]]  # type: ignore[attr-defined]
    modules[names[3]].OffScreenRenderEnv = FakeEnv  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_an_episode_begins_as_openvla_evaluates() -> None:
    env: Any = make("libero-goal/3")
    assert (env.instruction, env.max_steps) == ("do 3", 300)
    env.reset(4)
    log = env._env.log
    assert log[:3] == [("seed", 7), "reset", ("start", 101)]
    assert log[3:] == [[0, 0, 0, 0, 0, 0, -1]] * 10


@pytest.mark.parametrize(
    ("suite", "steps"), [("goal", 300), ("object", 280), ("spatial", 220), ("long", 520)]
)
def test_each_suite_has_its_steps(suite: str, steps: int) -> None:
    env: Any = make(f"libero-{suite}/0")
    env.reset(0)
    results = [env.step(np.zeros(7)) for _ in range(steps)]
    assert [one.over for one in results] == [False] * (steps - 1) + [True]
    assert not results[-1].success


def test_the_gripper_is_turned_round_and_success_ends() -> None:
    env: Any = make("libero-object/0")
    env.reset(0)
    env.step(np.array([0, 0, 0, 0, 0, 0, 0.996]))
    env.step(np.array([2.0, 0, 0, 0, 0, 0, 0.004]))
    assert env._env.log[-2:] == [[0, 0, 0, 0, 0, 0, -1], [1, 0, 0, 0, 0, 0, 1]]
    done = env.step(np.array([0.5, 0, 0, 0, 0, 0, 1.0]))
    assert done.success
    assert done.over


def test_the_picture_is_turned_and_cut() -> None:
    env: Any = make("libero-goal/0")
    env.reset(0)
    film, picture = env.film_frame(), env.picture()
    assert film[-1, -1, 0] > 0  # what the camera has at its first corner
    assert picture.shape == (243, 243, 3)  # nine tenths of the area
    assert np.array_equal(picture, film[6:249, 6:249])


def test_unknown_suites_and_tasks_are_named() -> None:
    with pytest.raises(SoonerError, match="goal"):
        make("libero-gaol/0")
    with pytest.raises(SoonerError, match="0 to 9, not 10"):
        make("libero-goal/10")


def test_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libero", None)
    monkeypatch.setitem(sys.modules, "libero.libero", None)
    with pytest.raises(SoonerError, match="pip install hf-libero"):
        make("libero-goal/0")
