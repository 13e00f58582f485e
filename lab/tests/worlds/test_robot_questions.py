"""Questions of the robot's world, which needs no simulator: pictures on the experts' way."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from sooner_lab.worlds.robot.questions import ROWS, ask_demonstrations, demonstrate


def test_moments_follow_from_their_seed() -> None:
    first, again, other = (np.stack(list(islice(demonstrate("table", n), 12))) for n in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({picture.tobytes() for picture in first}) > 6


def test_a_robot_is_questioned_by_its_experts() -> None:
    calls: list[tuple[int, set[str]]] = []

    def processor(pictures: list, instructions: list[str]) -> dict[str, Any]:
        calls.append((len(pictures), set(instructions)))
        return {}

    assert len(list(ask_demonstrations(processor, ROWS + 1, ("table",)))) == 2
    assert calls == [(ROWS, {"reach the blue ball"})] * 2
