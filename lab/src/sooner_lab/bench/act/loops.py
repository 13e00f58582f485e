"""Success in closed loops, by tolerance (figure 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sooner.tasks.act.rollout import Rollouts, run_rollouts

from ..run import Data, Progress
from .arms import ActContender
from .settings import ActSettings

FIRST = 6_000_000
"""Seeds of these episodes: goals that neither demonstrations nor observations have shown."""


def loops(
    settings: ActSettings,
    contenders: list[ActContender],
    progress: Progress,
    keep: Callable[[list[Data]], object],
) -> list[Data]:
    """Return a row for each setting and environment, and one over all of them.

    `strict` takes the actions of `plain`, so its episodes are the same and are not run again; `hf`
    and `auto` neither.
    """
    rows: list[Data] = []
    for arm in contenders:
        if arm.method not in ("plain", "relaxed"):
            continue
        total, calls = Rollouts(), dict[int, Any]()

        def note(answers: list[Any], calls: dict[int, Any] = calls) -> None:
            calls.update({id(answer.stats): answer for answer in answers})

        for env in settings.envs:
            progress(f"{arm.name}, {env}: {settings.episodes} episodes")
            earlier = len(calls)
            rollouts = run_rollouts(
                arm.act, env, episodes=settings.episodes, seed=FIRST + settings.seed % 1000,
                batch=settings.batch, on_call=note,
            )  # fmt: skip
            total.episodes += rollouts.episodes
            rows.append(_row(arm, env, rollouts, list(calls.values())[earlier:], None))
        steps = sum(call.stats.num_spec_steps for call in calls.values())
        accepted = sum(call.stats.num_accepted_draft_tokens for call in calls.values())
        length = 1 + accepted / steps if steps else 1.0
        rows.append(_row(arm, "all", total, list(calls.values()), length))
        keep(rows)
    return rows


def _row(
    arm: ActContender, env: str, rollouts: Rollouts, calls: list[Any], length: float | None
) -> Data:
    return {
        "method": arm.name,
        "mode": arm.mode,
        "tolerance": arm.tolerance or 0,
        "env": env,
        "episodes": len(rollouts.episodes),
        "successes": sum(episode.success for episode in rollouts.episodes),
        "success_rate": rollouts.success_rate,
        "interval": list(rollouts.interval),
        "mean_steps": sum(each.steps for each in rollouts.episodes) / len(rollouts.episodes),
        "actions_per_second": rollouts.steps / sum(call.seconds for call in calls),
        "mean_acceptance_length": length,
    }
