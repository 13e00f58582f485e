"""`sooner demo`: a page on which drafts are seen being accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from ..checks import option
from ..errors import SoonerError
from ..serve.settings import ServerSettings
from . import options
from .display import Display
from .from_settings import Fields, from_settings

SERVER_OPTIONS = Fields(only=("host", "port", "token"), defaults={"port": 7860})


@dataclass(frozen=True, kw_only=True)
class DemoJob:
    """What the page shows.

    Attributes:
        clip: for `export`; else the sample.
        export: write a race as one HTML file that needs no server, and end.
    """

    clip: Path | None = option(None, metavar="VIDEO")
    export: Path | None = option(None, metavar="FILE")
    settings: Annotated[ServerSettings, SERVER_OPTIONS] = field(default_factory=ServerSettings)
    models: options.Models = field(default_factory=options.Models)

    def race(self, display: Display) -> tuple[Any, dict[str, Any]]:
        """Returns the pair, and a race on the clip or the bundled one."""
        from .. import miniatures
        from ..demo.records import record_race
        from ..tasks.settings import CaptionSettings

        if self.clip is None and self.models.model is not None:
            raise SoonerError("no video given; name one with --clip")
        with display.loading():
            pair = self.models.load()
            path = self.clip or miniatures.sample_of("video")
            return pair, record_race(path, pair, CaptionSettings())

    def load(self) -> Any:
        """Returns the requested model by its type: one that draws, or a pair.

        Raises:
            SoonerError: it can't be loaded, or is a robot policy.
        """
        from ..models.model_types import config_dict, is_text_only
        from ..models.openvla.adapter import OpenVLA
        from ..tasks.imagine.loading import DRAWS, load_drawing_model

        models = self.models
        kind = config_dict(models.model or "")["model_type"]
        fields: dict[str, Any] = {"device": models.device, "dtype": models.dtype}
        if kind in OpenVLA.model_types:
            raise SoonerError(
                f"'{models.model}' is a robot policy, which the page does not show; film it with "
                "`sooner act rollout --films DIR`"
            )
        if kind in DRAWS:
            return load_drawing_model(models.model, threads=models.threads, **fields)
        return models.load(sees=not is_text_only(kind))


@from_settings
def demo(*, request: DemoJob, display: Display) -> None:
    """Open a page on which drafts are seen being accepted: races, words by origin, pages, pictures.

    Without --model, the bundled miniatures. Needs `pip install 'sooner[demo]'`, but for --export.
    """
    if request.export is None:
        _serve(request, display)
        return
    from ..demo.export import whole_page
    from ..io import check_writable, write_text

    check_writable(request.export, "--export")
    write_text(whole_page(request.race(display)[1]), request.export)
    display.line(f"  saved '{request.export}'; open it in a browser", "bold")


def _serve(request: DemoJob, display: Display) -> None:
    from ..serve.run import bind, check_startable, url

    check_startable(request.settings)
    if find_spec("gradio") is None:
        raise SoonerError(
            "the page needs gradio, which is not installed; pip install 'sooner[demo]'"
        )
    settings, first = request.settings, None
    from ..demo.page import Recorder, build_page, create_app
    from ..demo.tabs import tasks_of
    from ..serve.app import DrainingServer

    if request.models.model is None:
        pair, first = request.race(display)
        tasks = tasks_of(pair)
    else:
        with display.loading():
            tasks = tasks_of(request.load())
    page = build_page(tasks, Recorder(), first)
    with bind(settings) as listening:
        line = f"  the page is at {url(listening)} (Ctrl-C ends)"
        app = create_app(settings, page, partial(display.line, line, "bold"))
        DrainingServer(app, settings).run([listening])
