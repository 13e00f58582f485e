"""`sooner serve MODEL`: OpenAI's API over one model, many requests at once; and `sooner demo`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SoonerError
from ..serve.settings import ChatSettings, ReplicaSettings, ServerSettings
from . import options
from .display import Display
from .from_settings import Fields, from_settings
from .parse import WithAddress
from .parse_options import Ray

MODELS = Fields(without=("model", "tp"))
SERVED = Fields(
    without=(
        "max_bytes", "max_connections", "body_seconds", "head_seconds",
        "media_memory", "media_workers", "ping_seconds",
    ),
    env={"token": "SOONER_TOKEN"},
)  # fmt: skip

DEMO = Fields(
    only=("host", "port", "token"), defaults={"port": 7860}, env={"token": "SOONER_TOKEN"}
)
"""Models of the demo's server."""
DEMO_MODELS = Fields(without=("tp",))

NO_REPLICAS = ReplicaSettings()
"""Fields of a server without Ray."""


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.command(name="serve", cls=WithAddress)(serve)
    app.command(name="demo")(demo)


@from_settings
def serve(
    *,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Hub id or folder; or miniature, the bundled one for videos (miniature:document "
            "reads pages).",
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(metavar="ID_OR_PATH", help="LoRA adapter, merged into the model's weights."),
    ] = None,
    models: Annotated[options.Models, MODELS],
    settings: Annotated[ChatSettings, SERVED],
    ray: Ray = None,
    scaling: ReplicaSettings = NO_REPLICAS,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Answer OpenAI's API (chat, completions, models), several requests at once, exactly.

    `GET /health` and `GET /ready` are for probes, `GET /metrics` is for Prometheus. With --ray, as
    many processes as --replicas says answer behind one address.
    """
    if model is None:
        raise SoonerError(
            "name a model: a hub id, a folder, or miniature, which needs no download (sooner serve "
            "miniature)"
        )
    if ray is None and scaling != NO_REPLICAS:
        raise SoonerError(
            "--replicas, --max-replicas, --imbalanced-threshold, --upscale-seconds and "
            "--downscale-seconds are of --ray; add it, or leave them out"
        )
    from ..serve.run import check_address, require

    require()
    check_address(settings)
    from ..miniatures import sample_of
    from ..serve.adapters import base_of
    from ..serve.bundled import miniature_of
    from .served_models import ServedModels, tell_end

    if debug:
        options.log_decisions()
    small = miniature_of(model)
    if small is not None and settings.media_root is None:  # so that a first request needs no file
        settings = replace(settings, media_root=str(sample_of(small).parent))
    base = None if small is not None else base_of(model)
    if base is not None:
        model, adapter = base, adapter or model
    display = Display(quiet)
    served = ServedModels(model, small, adapter, models, settings, debug)
    if ray is not None:
        from .serve_ray import serve_on_ray

        serve_on_ray(served, ray, scaling, display)
        return
    from ..serve.chat_run import run_chat

    with display.job():
        display.stage("load")
        pair = served.load()
    run_chat(
        pair,
        model,
        settings,
        partial(served.tell, display),
        partial(tell_end, display, settings.grace_seconds),
        "info" if debug else "warning",
        served.page(pair),
    )


@from_settings
def demo(
    *,
    record: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Show this recording (of --save), without a model."),
    ] = None,
    clip: Annotated[
        Path | None, typer.Option(metavar="VIDEO", help="For --save and --export; else the sample.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record a race into a JSON file, and end.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one HTML file that needs no server, and end."),
    ] = None,
    settings: Annotated[ServerSettings, DEMO],
    models: Annotated[options.Models, DEMO_MODELS],
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Open a page on which drafts are seen being accepted: races, words by origin, all tasks.

    Without --model, the bundled miniatures. Needs `pip install 'sooner[demo]'`, but for --save and
    --export.
    """
    from .demo import run_demo

    run_demo(record, clip, save, export, settings, models, quiet, debug)
