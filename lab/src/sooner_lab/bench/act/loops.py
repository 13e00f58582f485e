"""Success in closed loops, by tolerance (figure 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sooner.tasks.act.rollout import Rollouts, run_rollouts

from .arms import ActContender
from .settings import ActSettings

Progress = Callable[[str], None]
FIRST = 6_000_000
"""Seeds of these episodes: goals that neither demonstrations nor observations have shown."""


def loops(
    settings: ActSettings,
    contenders: list[ActContender],
    progress: Progress,
    keep: Callable[[list[dict[str, Any]]], object],
) -> list[dict[str, Any]]:
    """A row for each setting and environment, and one over all of them.

    `strict` says what `plain` says, so its episodes are the same and are not run again; `hf` and
    `auto` neither.
    """
    rows: list[dict[str, Any]] = []
    for arm in contenders:
        if arm.method not in ("plain", "relaxed"):
            continue
        total = Rollouts()
        steps, accepted = [0], [0]
        for env in settings.envs:
            rollouts = _run(settings, arm, env, progress, steps, accepted)
            total.episodes += rollouts.episodes
            total.seconds += rollouts.seconds
            rows.append(_row(arm, env, rollouts, None))
        rows.append(_row(arm, "all", total, 1 + accepted[0] / steps[0] if steps[0] else 1.0))
        keep(rows)
    return rows


def _run(
    settings: ActSettings,
    arm: ActContender,
    env: str,
    progress: Progress,
    steps: list[int],
    accepted: list[int],
) -> Rollouts:
    done: list[bool] = []

    def count(answers: list[Any]) -> None:
        for stats in {id(each.stats): each.stats for each in answers}.values():
            steps[0] += stats.num_spec_steps
            accepted[0] += stats.num_accepted_draft_tokens

    def tell(episode: Any) -> None:
        done.append(episode.success)
        progress(f"{arm.name}, {env}: {sum(done)} of {len(done)} done, {settings.episodes} in all")

    return run_rollouts(
        arm.act, env, episodes=settings.episodes, seed=FIRST + settings.seed % 1000,
        batch=settings.batch, on_episode=tell, on_call=count,
    )  # fmt: skip


def _row(arm: ActContender, env: str, rollouts: Rollouts, length: float | None) -> dict[str, Any]:
    low, high = rollouts.interval
    return {
        "method": arm.name,
        "mode": arm.mode,
        "tolerance": arm.tolerance or 0,
        "env": env,
        "episodes": len(rollouts.episodes),
        "successes": rollouts.successes,
        "success_rate": rollouts.success_rate,
        "interval": [low, high],
        "mean_steps": sum(each.steps for each in rollouts.episodes) / len(rollouts.episodes),
        "actions_per_second": rollouts.actions_per_second,
        "mean_acceptance_length": length,
    }
