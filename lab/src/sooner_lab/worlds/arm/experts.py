"""Experts that see the state alone, as the policy does: no stage is remembered.

Each says how the hand should move and turn, and what its fingers do; `steer` makes that an action.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .simulator import ArmState

OPEN, CLOSE = -1.0, 1.0
REACH, TURN = 0.04, 0.35
"""Metres and radians of error at which the action is 1."""
FASTEST = 0.6
UP, OUT = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])
"""Of the world; the door opens outwards."""


@dataclass(frozen=True)
class ArmGoal:
    """Where the hand should go.

    Attributes:
        move: metres, `[3]`.
        turn: rotation vector, `[3]`.
        fingers: `OPEN` or `CLOSE`.
    """

    move: np.ndarray
    turn: np.ndarray
    fingers: float


def steer(goal: ArmGoal) -> np.ndarray:
    """The action `[7]` towards a goal; no axis is faster than `FASTEST`."""
    move, turn = goal.move / REACH, goal.turn / TURN
    move, turn = (one * min(1, FASTEST / max(np.abs(one).max(), 1e-9)) for one in (move, turn))
    return np.concatenate([move, turn, [goal.fingers]])


def _approach(
    state: ArmState, back: np.ndarray, near: float = 0.006, straight: float = 0.08
) -> ArmGoal:
    """To the grip, by way of a place `back [3]` from it, where the hand is turned and lies over it.

    The last stretch begins gradually, so that the action has no jump there.

    Args:
        near, straight: metres aside and radians within which the last stretch is taken whole.
    """
    apart = state.grip - state.hand
    out = back / np.linalg.norm(back)
    aside = np.linalg.norm(apart - out * (apart @ out))
    turned = np.linalg.norm(state.turn)
    over = np.clip((aside - near) / 0.012 + 4 * (turned - straight), 0, 1)
    return ArmGoal(apart + back * over, state.turn, OPEN)


def _is_at(state: ArmState, within: float) -> bool:
    apart = np.abs(state.grip - state.hand).max()
    return bool(apart < within and np.linalg.norm(state.turn) < 0.3)


def lift(state: ArmState) -> ArmGoal:
    """Over the cube, down, close, up."""
    if not _is_at(state, 0.014):
        return _approach(state, 0.07 * UP)
    if state.opening > 0.05:
        return ArmGoal(state.grip - state.hand, state.turn, CLOSE)
    return ArmGoal(0.03 * UP, state.turn, CLOSE)


def door(state: ArmState) -> ArmGoal:
    """Before the handle, forward, close, press it down, pull."""
    hinge, latch, _ = state.thing
    apart = state.grip - state.hand
    if hinge > 0.04 and np.abs(apart).max() < 0.04:  # the latch is free
        press = 0.03 * np.clip((1.55 - latch) / 0.15, 0, 1) * UP
        return ArmGoal(apart - press + 0.06 * OUT, state.turn, CLOSE)
    if not _is_at(state, 0.035):
        return _approach(state, 0.1 * OUT, near=0.012, straight=0.15)
    if state.opening > 0.06:
        return ArmGoal(apart, state.turn, CLOSE)
    press = 0.05 * np.clip((1.3 - latch) / 0.15, 0, 1) * UP
    pull = 0.06 * np.clip((latch - 1.0) / 0.15, 0, 1) * OUT
    return ArmGoal(apart - press + pull, state.turn, CLOSE)


def nut(state: ArmState) -> ArmGoal:
    """Over the nut's handle, down, close, up, over the peg, down, open, up."""
    off = state.thing
    aside = math.hypot(off[0], off[1])
    still = np.zeros(3)
    if aside < 0.016 and off[2] < 0.085:  # round the peg, down which it falls
        return ArmGoal(0.03 * UP if state.opening > 0.055 else still, still, OPEN)
    if not _is_at(state, 0.018):
        return _approach(state, 0.09 * UP)
    if state.opening > 0.045:
        return ArmGoal(state.grip - state.hand, state.turn, CLOSE)
    turned = -state.thing_yaw
    over = np.clip((aside - 0.006) / 0.02 + 3 * (abs(turned) - 0.08), 0, 1)
    up = (0.19 * over + 0.02 * (1 - over) - off[2]) * UP
    if over > 0 and off[2] < 0.16:  # first up, since the peg is in the way
        return ArmGoal(up, still, CLOSE)
    return ArmGoal(up - np.array([off[0], off[1], 0.0]), turned * UP, CLOSE)


EXPERTS: dict[str, Callable[[ArmState], ArmGoal]] = {"lift": lift, "door": door, "nut": nut}


def expert_action(name: str, state: ArmState) -> np.ndarray:
    """What the expert of a task does, `[7]`."""
    return steer(EXPERTS[name](state))
