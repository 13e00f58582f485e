"""A table drawn by numpy: a hand reaches a ball, without a simulator."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sooner.robots import StepResult

HALF, WIDTH = 56, 112
"""Rows and columns of one view; the policy's picture has two of them."""

LOW = np.array([-0.30, 0.45, 0.05])
HIGH = np.array([0.30, 0.95, 0.40])
SCALE = np.array([0.01, 0.01, 0.01, 1.0])
"""Largest action: a centimetre each way, and the fingers' effort, which does nothing here."""
NEAR = 0.05
"""Success: the hand is this close to the ball, in metres."""
WOOD, SKY, ARM, HAND, BALL = (
    np.array(colour, float)
    for colour in ((150, 115, 80), (200, 205, 210), (90, 20, 20), (0, 220, 230), (30, 60, 230))
)
PIXELS = 160.0
"""Pixels of a metre."""


class TableEnvironment:
    """A hand that moves in a box, and a ball to reach, drawn in two views above each other.

    Actions are `(dx, dy, dz, gripper)` in metres, as Meta-World's are here. It needs nothing
    but numpy, and steps in microseconds.
    """

    action_low: ClassVar[np.ndarray] = -SCALE
    action_high: ClassVar[np.ndarray] = SCALE

    def __init__(self) -> None:
        self.name, self.instruction, self.max_steps = "table", "reach the blue ball", 100
        self.hand = self.goal = np.zeros(3)
        self._done = 0

    def reset(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.hand = np.array([0.0, 0.6, 0.2]) + rng.uniform(-0.02, 0.02, 3)
        self.goal = rng.uniform([-0.2, 0.7, 0.08], [0.2, 0.9, 0.32])
        self._done = 0

    def step(self, action: np.ndarray) -> StepResult:
        move = np.clip(action, self.action_low, self.action_high)[:3]
        self.hand = np.clip(self.hand + move, LOW, HIGH)
        self._done += 1
        success = bool(np.linalg.norm(self.hand - self.goal) <= NEAR)
        return StepResult(success, success or self._done >= self.max_steps)

    def expert_action(self) -> np.ndarray:
        """Straight to the ball, slower as it comes near, `[4]`."""
        return SCALE * np.append(np.clip(10 * (self.goal - self.hand), -1, 1), 0.0)

    def picture(self) -> np.ndarray:
        return self._draw(1)

    def film_frame(self) -> np.ndarray:
        return self._draw(4)

    def close(self) -> None:
        """Do nothing: there is no simulator."""

    def _draw(self, zoom: int) -> np.ndarray:
        return np.concatenate([self._half(half, zoom) for half in range(2)])

    def _half(self, half: int, zoom: int) -> np.ndarray:
        """Returns one view, uint8 `[56 zoom, 112 zoom, 3]`: from the front, or from above."""
        rows, columns = np.mgrid[: HALF * zoom, : WIDTH * zoom] / zoom
        canvas = np.where((rows > 40)[..., None] | bool(half), WOOD, SKY)
        hand, ball = project(np.stack([self.hand, self.goal]), half)
        near_ball = bool(half) or self.goal[1] > self.hand[1]
        parts = [
            (_box(rows, columns, hand - [14, 0], (14, 2.5)), ARM),
            (_box(rows, columns, hand, (3.0, 1.8)), HAND),
        ]
        ball_part = (_disc(rows, columns, ball, 3.0), BALL)
        # From the front the nearer of the two hides the other; from above the ball stays in sight.
        for cover, colour in [*parts, ball_part] if near_ball else [ball_part, *parts]:
            canvas = canvas + cover[..., None] * (colour - canvas)
        return canvas.round().astype(np.uint8)


def project(points: np.ndarray, half: int) -> np.ndarray:
    """Returns `[points, 3]` in metres as `[points, (row, column)]` in pixels of one view."""
    columns = WIDTH / 2 - PIXELS * points[:, 0]
    rows = (
        48 - PIXELS * 0.9 * (points[:, 2] - 0.05) if half == 0 else 8 + 80 * (points[:, 1] - 0.45)
    )
    return np.stack([rows, columns], -1)


def _disc(rows: np.ndarray, columns: np.ndarray, at: np.ndarray, radius: float) -> np.ndarray:
    """Returns how much of each pixel a disc covers: its edge is soft, so that it shows
    fractions.
    """
    return np.clip(radius + 0.5 - np.hypot(rows - at[0], columns - at[1]), 0, 1)


def _box(rows: np.ndarray, columns: np.ndarray, at: np.ndarray, half: tuple) -> np.ndarray:
    """Returns the same for a box with half sides `half`."""
    high = np.clip(half[0] + 0.5 - np.abs(rows - at[0]), 0, 1)
    return high * np.clip(half[1] + 0.5 - np.abs(columns - at[1]), 0, 1)
