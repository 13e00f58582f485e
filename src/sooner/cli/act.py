"""`sooner act`: robot policies served, asked once, and rolled out."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SoonerError
from ..io import check_writable, write_json
from ..serve.settings import ServeSettings
from . import act_options, options
from .act_options import action_lines, rollout_lines, rollout_record
from .display import Display
from .from_settings import Fields, from_settings

SERVED = Fields(
    without=("max_body", "max_bytes", "body_seconds", "head_seconds", "grace_seconds"),
    env={"token": "SOONER_TOKEN"},
)

commands = typer.Typer(
    help="Robot policies: serve them, ask them, roll them out.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(commands, name="act")


@commands.callback()
def _group() -> None:
    """Robot policies: serve them, ask them, roll them out."""


@commands.command()
@from_settings
def serve(
    *,
    policy_options: act_options.PolicyOptions,
    settings: Annotated[ServeSettings, SERVED],
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Answer `POST /act` as OpenVLA's server does, several robots at once.

    `GET /health` tells what runs, `GET /metrics` counts for Prometheus.
    """
    from ..serve.run import check_address, require
    from ..serve.run import serve as run

    require()
    check_address(settings)
    display = Display(quiet)
    policy = policy_options.load(display, debug)

    def tell(url: str) -> None:
        display.line(f"  {policy.name} acts at {url}/act (Ctrl-C ends)", "bold")
        for note in policy_options.foreign("whatever robots will send"):
            display.line(f"  {note}", "yellow")

    run(policy, settings, tell, "info" if debug else "warning")


@commands.command()
@from_settings
def once(
    *,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="PNG, JPEG or npy.")],
    instruction: Annotated[str, typer.Argument(metavar="TEXT", help="What the robot is to do.")],
    policy_options: act_options.PolicyOptions,
    compare: Annotated[
        bool, typer.Option("--compare", help="Decode plainly too: deviation from the exact action.")
    ] = False,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0 is greedy; above it, tokens are sampled.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the draws.")] = 0,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Prints the action for one picture as JSON."""
    from ..tasks.act.observation import Observation, read_picture

    seen = Observation(read_picture(image), instruction)
    display = Display(quiet)
    policy = policy_options.load(display, debug)
    [action] = policy.act(
        [seen], method=policy_options.method, compare=compare, temperature=temperature, seed=seed
    )
    notes = policy_options.foreign(image, instruction)
    typer.echo(json.dumps({**action.as_dict(), "notes": notes}))
    for note in notes:
        display.line(f"  {note}", "yellow")
    for text, style in action_lines(action):
        display.line(text, style)


@commands.command()
@from_settings
def rollout(
    *,
    env: Annotated[
        str,
        typer.Option(metavar="NAME[,NAME...]", help="Such as: reach, push, drawer-open, table."),
    ],
    policy_options: act_options.PolicyOptions,
    episodes: Annotated[int, typer.Option(metavar="N", help="Of each environment.")] = 10,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the first episode.")] = 0,
    batch: Annotated[int, typer.Option(metavar="N", help="Episodes that run side by side.")] = 8,
    films: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Film episodes into this folder.")
    ] = None,
    film_limit: Annotated[int, typer.Option(metavar="N", help="Films of each environment.")] = 4,
    compare: Annotated[
        bool, typer.Option("--compare", help="Decode plainly too: deviation from exact actions.")
    ] = False,
    output: act_options.Json = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Closed loops in a simulator: how often the task is done, how quickly it is acted.

    Names of Meta-World need `pip install 'sooner[robots]' sooner-lab`; `table` needs nothing.
    """
    from ..provenance import provenance
    from ..tasks.act.rollout import run_rollouts

    if output is not None:
        check_writable(output)
    names = [name.strip() for name in env.split(",") if name.strip()]
    if not names:
        raise SoonerError("no environment given; name one with --env, such as reach")
    display = Display(quiet)
    policy = policy_options.load(display, debug)
    actions: list[Any] = []
    done: list[Any] = []
    total = len(names) * episodes

    def ended(episode: Any) -> None:
        done.append(episode)
        display.stage("rollout", total)
        display.advance(len(done), total)

    with display.job():
        display.stage("rollout", total)
        rollouts = run_rollouts(
            partial(policy.act, method=policy_options.method, compare=compare),
            names,
            episodes=episodes,
            seed=seed,
            batch=batch,
            films=films,
            film_limit=film_limit,
            on_episode=ended,
            on_call=actions.extend,
        )
    figures = rollout_record(rollouts, actions)
    notes = policy_options.foreign(*names)
    for note in notes:
        display.line(f"  {note}", "yellow")
    for text, style in rollout_lines(figures):
        display.line(text, style)
    if output is not None:
        record: dict[str, Any] = {
            "model": policy.name,
            "head": policy_options.head,
            "method": policy_options.method,
            "tolerance": policy_options.tolerance,
        }
        where = str(policy.adapter.device), str(policy.adapter.dtype).removeprefix("torch.")
        record["notes"] = notes
        write_json({**record, **figures, "provenance": provenance(*where, seed)}, output)
        display.line(f"  wrote '{output}'")
