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
    """Whether what the page is made with is installed."""
    return find_spec("gradio") is not None


def _race(
    models: options.Models, clip: Path | None, display: Display, debug: bool
) -> tuple[Any, dict[str, Any]]:
    """The pair, and a race on the clip or the bundled one."""
    from .. import miniatures
    from ..demo.race import record_race
    from ..tasks.settings import CaptionSettings

    if clip is None and models.model is not None:
        raise SoonerError("no video given; name one with --clip")
    with display.job():
        display.stage("load")
        pair = models.load(debug)
        path = clip if clip is not None else miniatures.find("video").sample
        assert path is not None
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
    from ..demo.page import Tasks, build_page, mount_page
    from ..demo.site import build_server, create_app
    from ..serve.server import stopping_is_no_failure

    tasks = []
    if not records and models.model is None:
        pair, made = _race(models, None, display, debug)
        tasks, records = Tasks(pair).all(), [made]
    elif not records:
        with display.job():
            display.stage("load")
            tasks = Tasks(models.load(debug)).all()
    page = build_page(tasks, Jobs(), records)
    app = create_app(settings, partial(mount_page, page=page))
    with bind(settings) as listening, stopping_is_no_failure():
        display.line(f"  the page is at {url(listening)} (Ctrl-C ends)", "bold")
        build_server(app, settings).run(sockets=[listening])
