"""Closed loops: a policy does the tasks, several episodes side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sooner.tasks.act.observation import Observation
from sooner.tasks.act.rollout import RolloutPolicy

from .gauges import draw, numbers
from .simulator import ArmEnvironment

SIDE_BY_SIDE = 16
"""Episodes at once."""


@dataclass
class Walk:
    """One episode of a policy.

    Attributes:
        task, seed: which.
        success: the task was done within its steps.
        numbers: what was seen before each action, `[NUMBERS]` each.
        answers: what the policy answered to each.
    """

    task: str
    seed: int
    success: bool = False
    numbers: list[np.ndarray] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)


def walk(
    act: RolloutPolicy,
    task: str,
    seeds: Sequence[int],
    *,
    rows: int = SIDE_BY_SIDE,
    envs: Sequence[ArmEnvironment] | None = None,
    limit: int | None = None,
    is_blind: bool = False,
    change: Callable[[Walk, np.ndarray], np.ndarray] = lambda one, action: action,
    tell: Callable[[int], None] = lambda done: None,
) -> list[Walk]:
    """The episodes of `seeds`, in their order.

    Args:
        act: asked about all live episodes at once.
        task: of `simulator.TASKS`.
        rows: episodes side by side.
        envs: of this task, to act in; by default as many as `rows` are made, and closed.
        limit: actions of an episode, where they are fewer than the task's own.
        is_blind: gauges show 0 whatever they should.
        change: makes another action `[7]` of the policy's, which is taken instead.
        tell: told how many have ended.

    Raises:
        SoonerError: an unknown task, or robosuite is not installed.
    """
    waiting = list(seeds)[::-1]
    own = [] if envs else [ArmEnvironment(task) for _ in range(min(rows, len(waiting)))]
    envs = envs or own
    live: list[tuple[ArmEnvironment, Walk]] = []
    done: dict[int, Walk] = {}
    free = list(envs)
    try:
        while live or waiting:
            while free and waiting:
                env, one = free.pop(), Walk(task, waiting.pop())
                env.reset(one.seed)
                live.append((env, one))
            seen = [numbers(task, env.state()) for env, _ in live]
            asked = [np.zeros_like(told) if is_blind else told for told in seen]
            answers = act([Observation(draw(told), envs[0].instruction) for told in asked])
            going = []
            for (env, one), told, answer in zip(live, seen, answers, strict=True):
                one.numbers.append(told)
                one.answers.append(answer)
                step = env.step(change(one, answer.values[0]))
                if step.over or len(one.answers) == limit:
                    one.success = step.success
                    done[one.seed] = one
                    free.append(env)
                    tell(len(done))
                else:
                    going.append((env, one))
            live = going
    finally:
        for env in own:
            env.close()
    return [done[seed] for seed in seeds]
