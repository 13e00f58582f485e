"""The state as the policy sees it: a picture of gauges, one for each number.

What a camera would add is not what this world judges, so the policy reads the state itself, as the
low-dimensional policies of robomimic do (Mandlekar et al. 2021). A number x in [-1, 1] is a patch
of stripes: bands of wavelength one patch whose phases are x times pi/2, pi, 2 pi, ..., so that a
linear layer over the patch's pixels reads sine and cosine of each.
"""

from __future__ import annotations

import math

import numpy as np

from .simulator import TASKS, ArmState

PATCH, GRID = 14, 4
SIDE = PATCH * GRID
BANDS = PATCH // 2
"""Phases of a gauge, each two pixels high; the finest tells 2 cm apart from its double."""
CENTRE = np.array([-0.05, 0.0, 1.0])
WAY, WIDEST = 0.35, 0.09
"""Metres that are 1: of a place, and of the opening between the fingers."""
THING = {"lift": (WAY, WAY, WAY), "door": (0.4, 1.6, 1.0), "nut": (WAY, WAY, WAY)}
NUMBERS = 14


def numbers(name: str, state: ArmState) -> np.ndarray:
    """What the policy is told of a state, each in [-1, 1], float32 `[NUMBERS]`; what is further
    away, as a nut is for some steps, looks as if it were there."""
    told = [
        *(state.hand - CENTRE) / WAY,
        2 * state.opening / WIDEST - 1,
        *(state.grip - state.hand) / WAY,
        *state.turn / math.pi,
        *state.thing / np.array(THING[name]),
        state.thing_yaw / (math.pi / 4),
    ]
    return np.clip(told, -1, 1).astype(np.float32)


def draw(told: np.ndarray) -> np.ndarray:
    """Pictures of numbers `[..., NUMBERS]`, uint8 `[..., SIDE, SIDE, 3]`; spare gauges show 0."""
    spare = np.zeros((*told.shape[:-1], GRID**2 - NUMBERS), told.dtype)
    values = np.concatenate([told, spare], axis=-1)[..., None, None]  # [..., gauges, 1, 1]
    rates = (math.pi / 2 * 2.0 ** np.arange(BANDS))[:, None]
    along = 2 * math.pi * np.arange(PATCH) / PATCH
    bands = 0.5 + 0.5 * np.sin(rates * values + along)  # [..., gauges, bands, columns]
    patches = np.repeat(bands, 2, axis=-2).reshape(*told.shape[:-1], GRID, GRID, PATCH, PATCH)
    picture = np.moveaxis(patches, -3, -2).reshape(*told.shape[:-1], SIDE, SIDE)
    grey = np.round(255 * picture).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1)


ORDER = tuple(TASKS)
"""Tasks by their numbers in recordings."""
