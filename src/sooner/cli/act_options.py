"""Options that the subcommands of `sooner act` share, and how their actions are printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checks import check_choice
from . import options
from .display import Display

Policy = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="ID_OR_PATH", help="An OpenVLA policy; without it, the miniature."
    ),
]

Head = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Draft head, trained for this policy by `sooner train draft`."
    ),
]

Method = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="plain, strict (drafted, exact), relaxed (drafted, near), or auto, which measures; "
        "by default auto where there is a head.",
    ),
]

Tolerance = Annotated[
    str | None,
    typer.Option(
        metavar="R",
        help="How far relaxed may go: bins (9), bins of each dimension (9,9,9,0), or lengths "
        "(5mm,5mm,5mm,0). One number leaves the gripper exact.",
    ),
]

UnnormKey = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Data set of the robot, where the policy knows several."),
]

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures.")]


@dataclass(frozen=True)
class PolicyOptions:
    """A policy as it was asked for; see the options."""

    model: Policy = None
    head: Head = None
    method: Method = None
    tolerance: Tolerance = None
    unnorm_key: UnnormKey = None
    device: options.Device = "auto"
    dtype: options.Dtype = "auto"
    threads: options.Threads = None

    def foreign(self, *sources: Path | str) -> list[str]:
        """Returns notes on pictures, instructions and environments that a miniature was not trained
        on.
        """
        from .. import miniatures
        from ..tasks.act.policy import MINIATURE

        return miniatures.find(MINIATURE).foreign(*sources) if self.model is None else []

    def load(self, display: Display, debug: bool) -> Any:
        """Returns the policy with its threads set, see `Threads`.

        Raises:
            SoonerError: as `sooner.tasks.act.policy.load`, an unknown method, fewer than one
                thread.
        """
        from ..methods.threads import Threads

        if debug:
            options.log_decisions()
        else:
            options.hush()
        options.check_threads(self.threads)
        with display.job():
            display.stage("load")
            policy = self._load()
        if self.tolerance is not None and policy.is_strict:
            display.line(
                f"  {self.tolerance} is less than a bin anywhere: actions are exact", "dim"
            )
        Threads.plan(self.threads, is_miniature=self.model is None).apply()
        return policy

    def _load(self) -> Any:
        from ..tasks.act.allowance import Allowance
        from ..tasks.act.policy import METHODS, load

        if self.method is not None:
            check_choice("method", self.method, METHODS)  # models load slowly
        allowance = None if self.tolerance is None else Allowance.parse(self.tolerance)
        policy = load(
            self.model,
            self.head,
            device=self.device,
            dtype=self.dtype,
            allowance=allowance,
            unnorm_key=self.unnorm_key,
        )
        if self.method is not None:
            policy.check_method(self.method)
        return policy


Line = tuple[str, str]

"""Text and style."""


def action_lines(action: Any) -> list[Line]:
    """Returns how one action was decoded."""
    stats = action.stats
    parts = (
        f"  {1e3 * action.seconds:.0f} ms, {action.ids.size} tokens in {stats.nfe} forwards, "
        f"method: {action.method}, mode: {action.mode}, acceptance: "
        f"{stats.mean_acceptance_length:.2f} tokens a step"
    )
    lines = [(parts, "")]
    for text, distance in (
        ("drafts accepted, from the policy's choices", action.deviation),
        ("action, from the exact one", action.from_exact),
    ):
        if distance is not None:
            lines.append((_distance(text, distance.as_dict(), action.names), "yellow"))
    if action.clipped.any():
        lines.append(("  said ids that are no action; they were read as the nearest", "yellow"))
    return lines


def rollout_record(rollouts: Any, actions: Sequence[Any]) -> dict[str, Any]:
    """Returns the figures of a rollout, ready for JSON.

    Args:
        rollouts: `Rollouts`.
        actions: all outputs of the policy, one for each episode and call.
    """
    calls = {id(action.stats): action for action in actions}.values()
    seconds = sum(action.seconds for action in calls)
    steps = sum(episode.steps for episode in rollouts.episodes)
    return {
        "episodes": [_episode(episode) for episode in rollouts.episodes],
        "success_rate": rollouts.success_rate,
        "interval": list(rollouts.interval),
        "environments": _by_environment(rollouts.episodes),
        "actions": steps,
        "actions_per_second": steps / max(seconds, 1e-9),
        **_milliseconds([action.seconds for action in calls]),
        "calls": len(calls),
        "methods": dict(Counter(action.method for action in calls)),
        "mode": next((item.mode for item in actions if item.mode != "exact"), "exact"),
        "mean_acceptance_length": _acceptance(calls),
        "clipped": sum(bool(action.clipped.any()) for action in actions),
        "names": _names(actions),
        "deviation": _pooled([action.deviation for action in actions]),
        "from_exact": _pooled([action.from_exact for action in actions]),
    }


def rollout_lines(record: dict[str, Any]) -> list[Line]:
    """Returns a rollout in a few lines."""
    low, high = record["interval"]
    done = sum(episode["success"] for episode in record["episodes"])
    methods = ", ".join(f"{name} {count}" for name, count in record["methods"].items())
    lines = [
        (
            f"  success: {done} of {len(record['episodes'])} ({record['success_rate']:.0%}, 95 % "
            f"interval {low:.0%} to {high:.0%})",
            "bold",
        ),
        (
            f"  {record['actions']} actions, {record['actions_per_second']:.1f} actions/s, a call "
            f"{record['p50_ms']:.0f} ms (p95 {record['p95_ms']:.0f}, p99 {record['p99_ms']:.0f}), "
            f"calls: {methods}, mode: {record['mode']}, acceptance: "
            f"{record['mean_acceptance_length']:.2f} tokens a step",
            "",
        ),
    ]
    if len(record["environments"]) > 1:
        rates = (f"{name} {rate:.0%}" for name, rate in record["environments"].items())
        lines.insert(1, (f"  {', '.join(rates)}", ""))
    for text, key in (
        ("drafts accepted, from the policy's choices", "deviation"),
        ("actions, from the exact ones", "from_exact"),
    ):
        if record[key] is not None:
            lines.append((_distance(text, record[key], record["names"]), "yellow"))
    films = [episode["film"] for episode in record["episodes"] if episode["film"]]
    return [*lines, *((f"  film '{film}'", "dim") for film in films)]


def _episode(episode: Any) -> dict[str, Any]:
    entry = {name: getattr(episode, name) for name in episode.__dataclass_fields__}
    return {**entry, "film": None if episode.film is None else str(episode.film)}


def _by_environment(episodes: Sequence[Any]) -> dict[str, float]:
    names = dict.fromkeys(episode.env for episode in episodes)
    groups = {name: [trial.success for trial in episodes if trial.env == name] for name in names}
    return {name: sum(group) / len(group) for name, group in groups.items()}


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    import numpy as np

    percentiles = np.percentile(seconds, (50, 95, 99)) if len(seconds) else np.zeros(3)
    return {
        f"p{p}_ms": 1e3 * float(value) for p, value in zip((50, 95, 99), percentiles, strict=True)
    }


def _acceptance(calls: Any) -> float:
    """Returns tokens a decoding step, over all rows of all calls."""
    counts: Counter[int] = Counter()
    for action in calls:
        counts.update(action.stats.acceptance_histogram)
    steps = sum(counts.values())
    return 1 + sum(accepted * count for accepted, count in counts.items()) / max(steps, 1)


def _names(actions: Sequence[Any]) -> list[str] | None:
    names = actions[0].names if actions else None
    return None if names is None else list(names)


def _pooled(distances: Sequence[Any]) -> dict[str, Any] | None:
    from ..tasks.act.action import Distance

    known = [distance for distance in distances if distance is not None]
    return Distance.pooled(known).as_dict() if known else None


def _distance(text: str, distance: dict[str, Any], names: Sequence[str] | None) -> str:
    """Mean and largest distance of each dimension, in its unit and in bins."""
    parts = []
    for i, mean in enumerate(distance["mean"]):
        name = names[i] if names is not None else str(i)
        bins = f"{distance['mean_bins'][i]:.1f}/{distance['max_bins'][i]:.0f}"
        parts.append(f"{name} {mean:.3g}/{distance['max'][i]:.3g} ({bins})")
    return f"  {text}, mean/max (in bins): " + ", ".join(parts)
