"""LIBERO's protocol, against a stand-in with the interface of `hf-libero`."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sooner.errors import SoonerError
from sooner.robots import make
from sooner_lab.robots.openvla_pictures import as_trained, middle


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
    """Seeded once with 0 when the environment is made (`get_libero_env`), not at each reset."""
    env: Any = make("libero-goal/3")
    assert (env.instruction, env.max_steps) == ("do 3", 300)
    assert env._env.options == {
        "bddl_file_name": "3.bddl",
        "camera_heights": 256,
        "camera_widths": 256,
    }
    env.reset(4)
    still = [[0, 0, 0, 0, 0, 0, -1]] * 10
    assert env._env.log == [("seed", 0), "reset", ("start", 101), *still]
    env.reset(5)
    assert env._env.log[13:] == ["reset", ("start", 102), *still]


@pytest.mark.parametrize(
    ("suite", "steps"), [("goal", 300), ("object", 280), ("spatial", 220), ("long", 520)]
)
def test_each_suite_has_its_steps(suite: str, steps: int) -> None:
    env: Any = make(f"libero-{suite}/0")
    env.reset(0)
    results = [env.step(np.zeros(7)) for _ in range(steps)]
    assert [result.over for result in results] == [False] * (steps - 1) + [True]
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


def scene() -> np.ndarray:
    """Slopes with one sharp and one coloured edge, `[256, 256, 3]` uint8."""
    down, across = np.mgrid[0:256, 0:256]
    picture = np.stack([down, across, (down + across) // 2], -1).astype(np.uint8)
    picture[60:120, 150:200] = (230, 30, 40)
    return picture


def lanczos(size: int, side: int) -> np.ndarray:
    """`tf.image.resize(method="lanczos3", antialias=True)` along one axis, `[side, size]`."""
    scale = size / side
    weights = np.zeros((side, size))
    for place in range(side):
        centre = (place + 0.5) * scale
        reach = (np.arange(size) + 0.5 - centre) / max(scale, 1)
        weights[place] = np.where(abs(reach) < 3, np.sinc(reach) * np.sinc(reach / 3), 0)
    return weights / weights.sum(1, keepdims=True)


def test_the_picture_is_turned_and_goes_through_jpeg_and_lanczos() -> None:
    env: Any = make("libero-goal/0")
    env.reset(0)
    env._seen = {"agentview_image": scene()[::-1, ::-1]}
    assert np.array_equal(env.film_frame(), scene())  # turned by half a turn
    file = io.BytesIO()
    Image.fromarray(scene()).save(file, "JPEG", quality=95, subsampling=2)
    decoded = np.asarray(Image.open(file)).astype(float)
    assert np.abs(decoded - scene()).max() > 5  # so leaving the round trip out shows
    weights = lanczos(256, 224)
    expected = (
        np.einsum("ij,jkc,lk->ilc", weights, decoded, weights, optimize=True).round().clip(0, 255)
    )
    made = as_trained(env.film_frame())
    assert made.dtype == np.uint8
    assert np.abs(made - expected).max() <= 1
    assert (made != expected).mean() < 1e-3
    picture = env.picture()
    assert picture.shape == (224, 224, 3)
    assert np.array_equal(picture, middle(made))


def test_the_middle_is_scaled_up_as_tensorflow_does() -> None:
    """Nine tenths of the area, sampled from corner to corner: a slope stays one, and a little
    less steep."""
    slope = np.repeat(np.arange(224, dtype=np.uint8)[:, None, None], 3, 2).repeat(224, 1)
    made = middle(slope)
    edge = (1 - 0.9**0.5) / 2 * 223  # where the first sample lies, in pixels
    expected = np.floor(np.linspace(edge, 223 - edge, 224) / 255 * 255.5)
    assert made.shape == (224, 224, 3)
    assert np.array_equal(made[:, 17, 1], expected)
    assert np.array_equal(middle(slope.swapaxes(0, 1)), made.swapaxes(0, 1))
    white = np.full((224, 224, 3), 255, np.uint8)
    assert np.array_equal(middle(white), white)


def test_missing_package_is_a_single_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libero", None)
    monkeypatch.setitem(sys.modules, "libero.libero", None)
    with pytest.raises(SoonerError, match="pip install hf-libero"):
        make("libero-goal/0")
