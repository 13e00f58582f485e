"""`sooner serve MODEL`: OpenAI's API over one model, many requests at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from ..errors import SoonerError
from ..serve.settings import ChatSettings
from . import options
from .display import Display
from .from_settings import Fields, from_settings

MODELS = Fields(without=("model", "tp"))
SERVED = Fields(
    without=(
        "max_bytes", "max_connections", "body_seconds", "head_seconds",
        "media_memory", "media_workers", "ping_seconds",
    ),
    env={"token": "SOONER_TOKEN"},
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="serve")(serve)


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
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Answer OpenAI's API (chat, completions, models), several requests at once, exactly.

    `GET /health` and `GET /ready` are for probes, `GET /metrics` is for Prometheus.
    """
    if model is None:
        raise SoonerError(
            "name a model: a hub id, a folder, or miniature, which needs no download (sooner serve "
            "miniature)"
        )
    from ..serve.heap import bound_heap, trimming_heap
    from ..serve.run import check_address, require

    require()
    bound_heap()
    check_address(settings)
    from ..serve.adapters import base_of
    from ..serve.chat_run import run_chat
    from ..serve.model import check_servable, draft_placement, merged_pair, miniature_of
    from ..tasks.loading import pick_device

    if debug:
        options.log_decisions()
    small = miniature_of(model)
    base = None if small is not None else base_of(model)
    if base is not None:
        model, adapter = base, adapter or model
    display = Display(quiet)
    with display.job():
        display.stage("load")
        named = replace(models, model=None if small is not None else model)
        placement = None
        if is_beside := settings.method == "parallel":
            placement = draft_placement(pick_device(models.draft_device or models.device))
        pair: Any = named.load(
            debug, placement, small or "video", settings.method if is_beside else None, sees=False
        )
        pair = merged_pair(pair, adapter)
    check_servable(pair)

    def tell(url: str) -> None:
        display.line(f"  {model} answers at {url}/v1 (Ctrl-C ends)", "bold")
        if is_beside:
            display.line("  one request decodes at a time, its draft beside it; others wait")
        if small is not None:
            from ..miniatures import MADE_UP

            display.line(f"  the bundled {small} miniature {MADE_UP}", "yellow")

    def tell_end(count: int) -> None:
        requests = "1 request" if count == 1 else f"{count} requests"
        grace = settings.grace_seconds
        display.line(f"  stopping; {requests} under way, at most {grace:g} s (Ctrl-C: at once)")

    with trimming_heap():
        run_chat(pair, model, settings, tell, tell_end, "info" if debug else "warning")
