"""Closed loops of all arms, in processes side by side: of each start whether the task was done."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from sooner.tasks.act.allowance import Allowance
from sooner.tasks.act.policy import Policy, load

from ...worlds.arm import collect
from ...worlds.arm.rollouts import SIDE_BY_SIDE, Walk, walk
from ...worlds.arm.simulator import NAMES, ArmEnvironment
from . import settings as fixed
from .settings import ArmSettings

AXES = len(NAMES) - 1
"""Numbers of an action that are relaxed; the last one is the fingers'."""
CHUNK = SIDE_BY_SIDE
"""Starts of one piece of work: all at once."""


@dataclass(frozen=True)
class ArmWork:
    """Some starts of one task, done by one arm.

    Attributes:
        arm: of `settings.GATE_ARMS`, `plain`, or `r=5` and so on.
        task: of the world.
        seeds: of the starts.
        models, head: folders.
    """

    arm: str
    task: str
    seeds: tuple[int, ...]
    models: str
    head: str


def arm_of(tolerance: int) -> str:
    """The name of a relaxed arm."""
    return f"r={tolerance}"


def loops(
    settings: ArmSettings, head: str, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A row for each episode of the parts that are asked for.

    Args:
        head: of `settings.heads`, which drafts.

    Returns:
        `arm`, `task`, `seed`, `success`, `steps`; of relaxed arms `deviation`: bins by which each
        axis is off the exact action on average, summed over the first `COUNTED` actions, and
        `rounds` and `accepted` draft tokens.
    """
    jobs = list(_jobs(settings, head))
    rows: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(settings.processes, context)
    try:
        running = [pool.submit(episodes, job) for job in jobs]
        for number, one in enumerate(as_completed(running)):
            rows += one.result()
            progress(f"closed loops: {number + 1} of {len(jobs)} pieces")
    finally:
        # Interrupted, what has not begun is dropped; otherwise there is nothing left to drop.
        pool.shutdown(cancel_futures=True)
    return sorted(rows, key=lambda row: (row["arm"], row["task"], row["seed"]))


def _jobs(settings: ArmSettings, head: str) -> Iterator[ArmWork]:
    """The longest task first, so that no process is left alone with it."""
    relaxed = [arm_of(one) for one in fixed.TOLERANCES] if "loops" in settings.parts else []
    asked = dict.fromkeys((fixed.PLAIN, *relaxed), True)  # whether on all starts
    if "gate" in settings.parts:
        asked |= dict.fromkeys(fixed.GATE_ARMS, False)
    target, draft = (str(settings.models / one) for one in ("target/checkpoint", f"head/{head}"))
    for task, count in sorted(settings.counts().items(), reverse=True):
        for arm, is_all in asked.items():
            many = count if is_all and relaxed else min(count, fixed.FEW)
            seeds = tuple(range(fixed.FIRST_START, fixed.FIRST_START + many))
            for at in range(0, many, CHUNK):
                yield ArmWork(arm, task, seeds[at : at + CHUNK], target, draft)


def episodes(work: ArmWork) -> list[dict[str, Any]]:
    """Rows of one piece of work, in whatever process."""
    torch.set_num_threads(1)
    if work.arm == fixed.EXPERT:
        return _by_expert(work)
    policy = _policy(work.models, work.head)
    asked: dict[str, Any] = {"method": "plain"}
    if work.arm.startswith("r="):
        policy = policy.allowing(Allowance(int(work.arm[2:])))
        asked = {"method": "relaxed", "compare": True}
    act: Any = partial(policy.act, **asked)
    more: dict[str, Any] = {"limit": fixed.LIMITS[work.task]}
    if work.arm == fixed.BLIND:
        more["is_blind"] = True
    elif work.arm == fixed.SHAKE:
        more["change"] = _shaken
    elif work.arm == fixed.RANDOM:
        act, more["change"] = _still, _random
    envs = _environments(work.task)
    return [_row(work.arm, one) for one in walk(act, work.task, work.seeds, envs=envs, **more)]


@cache
def _environments(task: str) -> list[ArmEnvironment]:
    """Of this process, for all its work: making one takes most of a second."""
    return [ArmEnvironment(task) for _ in range(SIDE_BY_SIDE)]


@cache
def _policy(models: str, head: str) -> Policy:
    return load(models, head, dtype="float32")


def _by_expert(work: ArmWork) -> list[dict[str, Any]]:
    env, none, limit = ArmEnvironment(work.task), collect.ArmNoise(0.0), fixed.LIMITS[work.task]
    try:
        found = [(seed, collect.demonstrate(env, seed, none, limit)) for seed in work.seeds]
    finally:
        env.close()
    return [
        {"arm": work.arm, "task": work.task, "seed": seed, "success": one.success,
         "steps": len(one.actions)}
        for seed, one in found
    ]  # fmt: skip


def _still(observations: list[Any]) -> list[Any]:
    return [SimpleNamespace(values=np.zeros((1, len(NAMES)))) for _ in observations]


def _random(one: Walk, action: np.ndarray) -> np.ndarray:
    return np.random.default_rng([one.seed, len(one.answers)]).uniform(-1, 1, len(action))


def _shaken(one: Walk, action: np.ndarray) -> np.ndarray:
    signs = np.random.default_rng([one.seed, fixed.SHAKEN]).choice([-1.0, 1.0], len(action))
    signs[-1] = 0.0
    return action + fixed.SHAKEN * collect.BIN * signs


def _row(arm: str, one: Walk) -> dict[str, Any]:
    told = {
        "arm": arm, "task": one.task, "seed": one.seed, "success": one.success,
        "steps": len(one.answers),
    }  # fmt: skip
    far = [each.from_exact for each in one.answers if getattr(each, "from_exact", None)]
    if far:
        off = [float(each.mean_bins[:AXES].mean()) for each in far]
        told |= {"deviation": sum(off[: fixed.COUNTED]), "bins": sum(off) / len(off)}
    return told
