"""What `sooner demo` does; its options are in `serve.py`, since it serves a page."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import SoonerError
from ..serve.settings import ServerSettings
from . import options
from .display import Display


def run_demo(
    record: list[Path] | None,
    clip: Path | None,
    save: Path | None,
    export: Path | None,
    settings: ServerSettings,
    models: options.Models,
    quiet: bool,
    debug: bool,
) -> None:
    """Serve the page, or write what was asked for; arguments as the options.

    Raises:
        SoonerError: a record or an address that can't be used, or something that is missing.
    """
    from ..demo.export import read_record, whole_page
    from ..io import write_json

    display = Display(quiet)
    records = [read_record(path) for path in record or []]
    if len(records) > 1 and (save or export):
        raise SoonerError("--save and --export take one --record; leave the others out")
    if save is None and export is None:
        _serve(records, settings, models, display, debug)
        return
    made = records[0] if records else _race(models, clip, display, debug)[1]
    if save is not None:
        write_json(made, save)
        display.line(f"  saved '{save}'", "bold")
    if export is not None:
        export.write_text(whole_page(made), encoding="utf-8")
        display.line(f"  saved '{export}'; open it in a browser", "bold")


def has_page() -> bool:
    """Returns whether what the page is made with is installed."""
    return find_spec("gradio") is not None


def _race(
    models: options.Models, clip: Path | None, display: Display, debug: bool
) -> tuple[Any, dict[str, Any]]:
    """Returns the pair, and a race on the clip or the bundled one."""
    from .. import miniatures
    from ..demo.race import record_race
    from ..tasks.settings import CaptionSettings

    if clip is None and models.model is not None:
        raise SoonerError("no video given; name one with --clip")
    with display.job():
        display.stage("load")
        pair = models.load(debug)
        path = miniatures.sample_of("video") if clip is None else clip
        return pair, record_race(path, pair, CaptionSettings())


def _serve(
    records: list[dict[str, Any]],
    settings: ServerSettings,
    models: options.Models,
    display: Display,
    debug: bool,
) -> None:
    from ..serve.run import bind, check_address, require, url

    require()
    if not has_page():
        raise SoonerError(
            "the page needs gradio, which is not installed; pip install 'sooner[demo]'"
        )
    check_address(settings)
    from ..demo.jobs import Jobs
    from ..demo.page import build_page, mount_page
    from ..demo.site import build_server, create_app
    from ..demo.tabs import tasks_of
    from ..serve.server import stopping_is_no_failure

    tasks = []
    if not records and models.model is None:
        pair, made = _race(models, None, display, debug)
        tasks, records = tasks_of(pair), [made]
    elif not records:
        with display.job():
            display.stage("load")
            tasks = tasks_of(_named(models, debug))
    page = build_page(tasks, Jobs(), records)
    app = create_app(settings, partial(mount_page, page=page))
    server = build_server(app, settings)
    with bind(settings) as listening, stopping_is_no_failure(server):
        display.line(f"  the page is at {url(listening)} (Ctrl-C ends)", "bold")
        server.run(sockets=[listening])


def _named(models: options.Models, debug: bool) -> Any:
    """Returns the model that was asked for, as what its type is: a policy, one that draws, or a
    pair.

    Raises:
        SoonerError: it can't be loaded.
    """
    from ..models.openvla.adapter import OpenVLA
    from ..tasks.act.policy import Policy
    from ..tasks.imagine import load_drawing_model
    from ..tasks.imagine.loading import LOADERS
    from ..tasks.loading import config_type

    assert models.model is not None
    kind = config_type(models.model)
    fields: dict[str, Any] = {"device": models.device, "dtype": models.dtype}
    if kind in OpenVLA.model_types:
        return Policy.load(models.model, models.draft, **fields)
    if kind in LOADERS:
        return load_drawing_model(models.model, threads=models.threads, **fields)
    return models.load(debug)
