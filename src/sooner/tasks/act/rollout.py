"""Closed-loop rollouts: a policy acts in simulated environments; episodes saved as videos."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from ...errors import SoonerError
from ...robots import Environment, make, names
from ..video import Film
from .action import Distance
from .observation import Observation

environment_names = names

RolloutPolicy = Callable[[list[Observation]], list[Any]]
"""A function that returns one action for each observation; `.values` is `[horizon, dims]`."""


@dataclass(frozen=True)
class Episode:
    """The outcome that one episode has.

    Attributes:
        env, seed: which it was.
        success: the task was done within its steps.
        steps: actions taken.
        calls: times the policy was asked.
        film: where it was filmed.
    """

    env: str
    seed: int
    success: bool
    steps: int
    calls: int
    film: Path | None = None


@dataclass
class Rollouts:
    """All episodes that a run has.

    Attributes:
        episodes: in the order in which they ended.
        seconds: spent in the policy, pictures and physics left out.
    """

    episodes: list[Episode] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def successes(self) -> int:
        return sum(episode.success for episode in self.episodes)

    @property
    def success_rate(self) -> float:
        return self.successes / max(len(self.episodes), 1)

    @property
    def interval(self) -> tuple[float, float]:
        """Returns Wilson's 95 % interval of the success rate."""
        return wilson(self.successes, len(self.episodes))

    @property
    def actions_per_second(self) -> float:
        """Returns the actions taken for each second of the policy."""
        return sum(episode.steps for episode in self.episodes) / max(self.seconds, 1e-9)


def wilson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Returns Wilson's score interval of a proportion (Wilson 1927)."""
    if not trials:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, spread = successes / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    # Rounding must not push an end past its share where all or none succeeded.
    return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)


def run_rollouts(
    act: RolloutPolicy,
    env: str | Iterable[str],
    *,
    episodes: int,
    seed: int = 0,
    batch: int = 8,
    films: Path | None = None,
    film_limit: int = 4,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    on_call: Callable[[list[Any]], None] = lambda answers: None,
) -> Rollouts:
    """Run episodes `seed`, `seed + 1`, ... of one environment, or of several in turn.

    Args:
        act: the policy with its method, such as `partial(policy.act, method="strict")`.
        env: names as `sooner.robots.make` knows them.
        episodes: of each environment.
        batch: episodes that run side by side.
        films: folder for films of the first `film_limit` episodes of each environment.
        on_episode: told every episode as it ends.
        on_call: told what the policy answered, one entry for each live episode.

    Raises:
        SoonerError: an unknown environment, a simulator that is not installed, or no episodes.
    """
    if episodes < 1 or batch < 1:
        raise SoonerError(f"{episodes} episodes, {batch} side by side: both must be at least 1")
    rollouts = Rollouts()
    for name in [env] if isinstance(env, str) else env:
        waiting = [
            (number, films / f"{name}-{number:04}.mp4" if films and index < film_limit else None)
            for index, number in enumerate(range(seed, seed + episodes))
        ]
        with ExitStack() as stack:
            lanes = [_Lane(make(name)) for _ in range(min(batch, episodes))]
            for lane in lanes:
                stack.callback(lane.close)
                lane.begin(*waiting.pop(0))
            while live := [lane for lane in lanes if lane.live]:
                seen = [Observation(lane.env.picture(), lane.env.instruction) for lane in live]
                begun = time.perf_counter()
                answers = act(seen)
                rollouts.seconds += time.perf_counter() - begun
                on_call(answers)
                for lane, answer in zip(live, answers, strict=True):
                    if (episode := lane.take(answer.values)) is None:
                        continue
                    rollouts.episodes.append(episode)
                    on_episode(episode)
                    if waiting:
                        lane.begin(*waiting.pop(0))
    return rollouts


class _Lane:
    """One environment, used for one episode after the other."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.live = False
        self._film: Film | None = None

    def begin(self, seed: int, film: Path | None) -> None:
        self.seed, self.steps, self.calls = seed, 0, 0
        self.live = True
        self.env.reset(seed)
        self._film = None if film is None else Film(film)
        self._shoot()

    def take(self, actions: np.ndarray) -> Episode | None:
        """Takes the actions `[horizon, dims]` one by one, as far as the episode goes; returns the
        episode once it has ended.
        """
        self.calls += 1
        for action in actions:
            step = self.env.step(action)
            self.steps += 1
            self._shoot()
            if step.over:
                self.live = False
                path = None if self._film is None else self._film.close()
                self._film = None
                name = self.env.name
                return Episode(name, self.seed, step.success, self.steps, self.calls, path)
        return None

    def close(self) -> None:
        if self._film is not None:
            self._film.drop()
        self.env.close()

    def _shoot(self) -> None:
        if self._film is not None:
            self._film.add(self.env.film_frame())


def rollout_record(rollouts: Rollouts, actions: Sequence[Any]) -> dict[str, Any]:
    """Returns the figures of a rollout, ready for JSON.

    Args:
        rollouts: the episodes.
        actions: all outputs of the policy, one for each episode and call.
    """
    calls = {id(action.stats): action for action in actions}.values()
    seconds = [action.seconds for action in calls]
    steps = sum(episode.steps for episode in rollouts.episodes)
    results: dict[str, list[bool]] = {}
    for episode in rollouts.episodes:
        results.setdefault(episode.env, []).append(episode.success)
    counts: Counter[int] = Counter()
    for action in calls:
        counts.update(action.stats.acceptance_histogram)
    accepted = sum(length * count for length, count in counts.items())
    return {
        "episodes": [
            {**vars(episode), "film": episode.film and str(episode.film)}
            for episode in rollouts.episodes
        ],
        "success_rate": rollouts.success_rate,
        "interval": list(rollouts.interval),
        "environments": {name: sum(done) / len(done) for name, done in results.items()},
        "actions": steps,
        "actions_per_second": steps / max(sum(seconds), 1e-9),
        **{
            f"p{share}_ms": 1e3 * float(np.percentile(seconds, share)) if seconds else 0.0
            for share in (50, 95, 99)
        },
        "calls": len(calls),
        "methods": dict(Counter(action.method for action in calls)),
        "mode": next((item.mode for item in actions if item.mode != "exact"), "exact"),
        "mean_acceptance_length": 1 + accepted / max(sum(counts.values()), 1),
        "clipped": sum(bool(action.clipped.any()) for action in actions),
        "names": list(actions[0].names) if actions and actions[0].names is not None else None,
        "deviation": _pooled([action.deviation for action in actions]),
        "from_exact": _pooled([action.from_exact for action in actions]),
    }


def _pooled(distances: Sequence[Distance | None]) -> dict[str, Any] | None:
    known = [distance for distance in distances if distance is not None]
    return Distance.pooled(known).as_dict() if known else None
