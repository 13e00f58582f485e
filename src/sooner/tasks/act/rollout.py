"""Closed-loop rollouts: a policy acts in simulated environments; episodes saved as videos."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from ...robots import make
from ..video import film
from .observation import Observation
from .policy import Distance

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
    """

    episodes: list[Episode] = field(default_factory=list)

    @property
    def success_rate(self) -> float:
        return sum(episode.success for episode in self.episodes) / max(len(self.episodes), 1)

    @property
    def interval(self) -> tuple[float, float]:
        """Returns Wilson's 95 % score interval of the success rate (Wilson 1927)."""
        if not self.episodes:
            return 0.0, 1.0
        z, trials, share = NormalDist().inv_cdf(0.975), len(self.episodes), self.success_rate
        spread = z * z / trials
        middle = (share + spread / 2) / (1 + spread)
        half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
        # Rounding must not push an end past its share where all or none succeeded.
        return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)

    @property
    def steps(self) -> int:
        """Returns the actions taken in all episodes."""
        return sum(episode.steps for episode in self.episodes)

    def as_dict(self, actions: Sequence[Any]) -> dict[str, Any]:
        """Returns the figures of all episodes, ready for JSON.

        Args:
            actions: all outputs of the policy, one for each episode and call.
        """
        calls = {id(action.stats): action for action in actions}.values()
        spec_steps = sum(action.stats.num_spec_steps for action in calls)
        accepted = sum(action.stats.num_accepted_draft_tokens for action in calls)
        times = [action.seconds for action in calls] or [0.0]
        results: dict[str, list[bool]] = {}
        for episode in self.episodes:
            results.setdefault(episode.env, []).append(episode.success)
        return {
            "episodes": [
                {**vars(episode), "film": episode.film and str(episode.film)}
                for episode in self.episodes
            ],
            "success_rate": self.success_rate,
            "interval": list(self.interval),
            "environments": {name: sum(done) / len(done) for name, done in results.items()},
            "actions": self.steps,
            "actions_per_second": self.steps / max(sum(times), 1e-9),
            **{f"p{share}_ms": 1e3 * float(np.percentile(times, share)) for share in (50, 95, 99)},
            "calls": len(calls),
            "methods": dict(Counter(action.method for action in calls)),
            "mode": next((item.mode for item in actions if item.mode != "exact"), "exact"),
            "mean_acceptance_length": 1 + accepted / max(spec_steps, 1),
            "clipped": sum(bool(action.clipped.any()) for action in actions),
            "names": list(actions[0].names) if actions and actions[0].names is not None else None,
            "deviation": _pooled([action.deviation for action in actions]),
            "from_exact": _pooled([action.from_exact for action in actions]),
        }


def _pooled(distances: Sequence[Distance | None]) -> dict[str, Any] | None:
    known = [distance for distance in distances if distance is not None]
    return Distance.pooled(known).as_dict() if known else None


def run_rollouts(
    act: RolloutPolicy, env: str | Iterable[str], *, episodes: int, seed: int = 0, batch: int = 8,
    films: Path | None = None, film_limit: int = 4,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    on_call: Callable[[list[Any]], None] = lambda answers: None,
) -> Rollouts:  # fmt: skip
    """Run episodes `seed`, `seed + 1`, ... of one environment, or of several in turn.

    Args:
        act: the policy with its method, such as `partial(policy.act, method="strict")`.
        env: names as `sooner.robots.make` knows them.
        episodes: of each environment.
        batch: episodes that run side by side.
        films: folder for films of the first `film_limit` episodes of each environment.
        on_episode: receives every episode as it ends.
        on_call: receives what the policy answered, one entry for each live episode.

    Raises:
        SoonerError: an unknown environment, or a simulator that is not installed.
    """
    rollouts = Rollouts()

    def end(episode: Episode) -> None:
        rollouts.episodes.append(episode)
        on_episode(episode)

    for name in [env] if isinstance(env, str) else env:
        paths = [films / f"{name}-{seed + index:04}.mp4" if films and index < film_limit else None
                 for index in range(episodes)]  # fmt: skip
        waiting = deque(enumerate(paths, start=seed))
        with ExitStack() as stack:
            lanes = [_lane(name, waiting, end) for _ in range(min(batch, episodes))]
            for lane in lanes:
                stack.callback(lane.close)
            pending = [(lane, next(lane)) for lane in lanes]
            while live := [(lane, seen) for lane, seen in pending if seen is not None]:
                answers = act([seen for _, seen in live])
                on_call(answers)
                pending = [
                    (lane, lane.send(answer.values))
                    for (lane, _), answer in zip(live, answers, strict=True)
                ]
    return rollouts


def _lane(
    name: str, waiting: deque[tuple[int, Path | None]], end: Callable[[Episode], None]
) -> Generator[Observation | None, np.ndarray, None]:
    """Runs one episode after the other in one environment.

    Args:
        name: of the environment.
        waiting: seeds and films of the episodes that have not begun.
        end: receives each episode that has ended.

    Yields:
        What the policy sees, in return for its actions `[horizon, dims]`, which are taken one by
        one as far as the episode goes; `None` once no episode waits.
    """
    with closing(make(name)) as env:
        while waiting:
            seed, path = waiting.popleft()
            env.reset(seed)
            steps = calls = 0
            over = success = False
            with nullcontext() if path is None else film(path) as shoot:
                if shoot is not None:
                    shoot(env.film_frame())
                while not over:
                    actions = yield Observation(env.picture(), env.instruction)
                    calls += 1
                    for action in actions:
                        result = env.step(action)
                        over, success, steps = result.over, result.success, steps + 1
                        if shoot is not None:
                            shoot(env.film_frame())
                        if over:
                            break
            end(Episode(env.name, seed, success, steps, calls, path))
        yield None
