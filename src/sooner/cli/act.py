"""`sooner act`: robot policies served, asked once, and rolled out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checks import REQUIRED, check_choice, check_fields, option
from ..errors import SoonerError
from ..io import check_writable, write_json
from ..serve.settings import ServeSettings
from ..tasks.settings import CaptionSettings, parse_numbers
from . import options
from .display import Display, Line, figures
from .from_settings import Fields, from_settings

SERVER_OPTIONS = Fields(without=("max_body", "body_seconds", "grace_seconds"))

commands = typer.Typer(
    help="Robot policies: serve them, ask them, roll them out.", no_args_is_help=True
)


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(options.SingleModel):
    """A policy, and how it is decoded.

    Attributes:
        model: an OpenVLA policy; without it, the miniature.
        head: draft head, trained for this policy by `sooner train draft`.
        method: plain, strict (drafted, exact), relaxed (drafted, near), or auto, which measures;
            by default auto where there is a head.
        tolerance: how far relaxed may go, in bins: of all dimensions but the gripper (9), or of
            each (9,9,9,0).
        unnorm_key: data set of the robot, where the policy knows several.
        compare: decode plainly too: deviation from the exact actions.
    """

    head: str | None = option(None, metavar="FOLDER")
    method: str | None = option(None, metavar="NAME")
    tolerance: str | None = option(None, metavar="R")
    unnorm_key: str | None = option(None, metavar="NAME")
    compare: bool = False

    def foreign(self, *sources: Path | str) -> list[str]:
        """Returns notes on sources that a miniature was not trained on."""
        from .. import miniatures
        from ..tasks.act.policy import MINIATURE

        return miniatures.find(MINIATURE).foreign(*sources) if self.model is None else []

    def load(self, display: Display) -> Any:
        """Returns the policy with its threads set, see `Threads`.

        Raises:
            SoonerError: as `Policy.load`, or an unknown method.
        """
        from ..methods.threads import Threads
        from ..tasks.act.policy import METHODS, Policy

        if self.method is not None:
            check_choice("method", self.method, METHODS)  # models load slowly
        bins = None if self.tolerance is None else parse_numbers(self.tolerance)
        with display.loading():
            policy = Policy.load(
                self.model, self.head, device=self.device, dtype=self.dtype,
                allowance=bins[0] if bins and len(bins) == 1 else bins, unnorm_key=self.unnorm_key,
            )  # fmt: skip
        if self.method is not None:
            policy.check_method(self.method)
        Threads.plan(self.threads, is_miniature=self.model is None).apply()
        return policy


@commands.command()
@from_settings
def serve(
    *,
    policy_options: Annotated[PolicyOptions, Fields(without=("compare",))],
    settings: Annotated[ServeSettings, SERVER_OPTIONS],
    display: Display,
) -> None:
    """Answer `POST /act` as OpenVLA's server does, several robots at once.

    `GET /health` tells what runs, `GET /metrics` counts for Prometheus.
    """
    from ..serve.run import check_startable

    check_startable(settings)
    from ..serve.act import build_server

    policy = policy_options.load(display)

    def report(url: str) -> None:
        display.line(f"  {policy.name} acts at {url}/act (Ctrl-C ends)", "bold")
        display.notes(policy_options.foreign("whatever robots will send"))

    level = "info" if display.debug else "warning"
    build_server(policy, settings, level).listen(report)


@commands.command()
@from_settings
def once(
    *,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="PNG, JPEG or npy.")],
    instruction: Annotated[str, typer.Argument(metavar="TEXT", help="What the robot is to do.")],
    policy_options: PolicyOptions,
    sampling: Annotated[CaptionSettings, Fields(only=("temperature", "seed"))],
    display: Display,
) -> None:
    """Prints the action for one picture as JSON."""
    from ..tasks.act.observation import Observation, read_picture

    observation = Observation(read_picture(image), instruction)
    policy = policy_options.load(display)
    [action] = policy.act(
        [observation], method=policy_options.method, compare=policy_options.compare,
        temperature=sampling.temperature, seed=sampling.seed,
    )  # fmt: skip
    notes = policy_options.foreign(image, instruction)
    typer.echo(json.dumps({**action.as_dict(), "notes": notes}))
    display.notes(notes)
    display.lines(action_lines(action))


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """Says which episodes a rollout runs.

    Attributes:
        env: such as: reach, push, drawer-open, table.
        episodes: of each environment.
        seed: of the first episode.
        batch: episodes that run side by side.
        films: film episodes into this folder.
        film_limit: films of each environment.
        json: write all figures there.
    """

    env: str = option(REQUIRED, metavar="NAME[,NAME...]")
    episodes: int = option(10, 1)
    seed: int = 0
    batch: int = option(8, 1)
    films: Path | None = option(None, metavar="DIR")
    film_limit: int = option(4, 0)
    json: Path | None = option(None, metavar="FILE")

    def __post_init__(self) -> None:
        check_fields(self)


@commands.command()
@from_settings
def rollout(*, request: RolloutOptions, policy_options: PolicyOptions, display: Display) -> None:
    """Closed loops in a simulator: how often the task is done, how quickly it is acted.

    Environments come with `pip install sooner-lab`; those of Meta-World need 'sooner[robots]', too.
    """
    from ..provenance import versions
    from ..tasks.act.rollout import run_rollouts

    if request.json is not None:
        check_writable(request.json)
    names = [name.strip() for name in request.env.split(",") if name.strip()]
    if not names:
        raise SoonerError("no environment given; name one with --env, such as reach")
    policy = policy_options.load(display)
    actions: list[Any] = []
    done, total = count(1), len(names) * request.episodes
    with display.job():
        display.stage("rollout", total)
        rollouts = run_rollouts(
            partial(policy.act, method=policy_options.method, compare=policy_options.compare),
            names, episodes=request.episodes, seed=request.seed, batch=request.batch,
            films=request.films, film_limit=request.film_limit,
            on_episode=lambda episode: display.advance(next(done), total), on_call=actions.extend,
        )  # fmt: skip
    result, notes = rollouts.as_dict(actions), policy_options.foreign(*names)
    display.notes(notes)
    display.lines(rollout_lines(result))
    if request.json is not None:
        record = {"model": policy.name, "notes": notes}
        record |= {name: getattr(policy_options, name) for name in ("head", "method", "tolerance")}
        record |= {"device": str(policy.adapter.device), "seed": request.seed}
        record |= {"dtype": str(policy.adapter.dtype).removeprefix("torch.")}
        write_json({**record, **result, "versions": versions()}, request.json)
        display.line(f"  wrote '{request.json}'")


def action_lines(action: Any) -> Iterator[Line]:
    """Yields how one action was decoded."""
    record = {**action.as_dict(), "tokens": action.ids.size}
    yield figures(record, "seconds", "tokens", "forwards", "method", "mode"), ""
    yield figures(record, "acceptance_length"), ""
    yield from _distances(record)
    if record["clipped"]:
        yield "some ids are no action; they were read as the nearest", "yellow"


def rollout_lines(record: dict[str, Any]) -> Iterator[Line]:
    """Yields a rollout in a few lines."""
    yield figures(record, "success_rate", "interval", "environments"), "bold"
    yield figures(record, "actions", "actions_per_second", "p50_ms", "p95_ms", "p99_ms"), ""
    yield figures(record, "methods", "mode", "mean_acceptance_length"), ""
    yield from _distances(record)
    for episode in record["episodes"]:
        yield figures(episode, "film"), "dim"


def _distances(record: dict[str, Any]) -> Iterator[Line]:
    """Yields distances from the policy's choices and from the exact actions, for each dimension."""
    for name in ("deviation", "from_exact"):
        if (distance := record[name]) is not None:
            dims = record["names"] or map(str, range(len(distance["mean"])))
            columns = (distance[key] for key in ("mean", "max", "mean_bins", "max_bins"))
            parts = [
                f"{dim} {mean:.3g}/{largest:.3g} ({mean_bins:.1f}/{max_bins:.0f})"
                for dim, mean, largest, mean_bins, max_bins in zip(dims, *columns, strict=True)
            ]
            title = name.replace("_", " ")
            yield f"{title}, mean/max (in bins): {', '.join(parts)}", "yellow"
