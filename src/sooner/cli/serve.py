"""`sooner serve MODEL`: OpenAI's API over one model, many requests at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

from .. import miniatures
from ..checks import check_choice, option
from ..errors import SoonerError
from ..serve.settings import ChatSettings, ReplicaSettings
from . import options
from .display import Display, silence_libraries
from .from_settings import Fields, from_settings

TYPO = 0.8
"""Likeness of a name to `MINIATURE` from which on it is meant, though misspelt."""
MINIATURE, MINIATURES = "miniature", ("video", "document")
"""`miniature` is the first of these; `miniature:document` names one."""

MODELS = Fields(without=("model",))
SERVER_OPTIONS = Fields(
    without=("max_connections", "body_seconds", "media_memory", "media_workers", "ping_seconds")
)


@dataclass(frozen=True, kw_only=True)
class ServeJob:
    """The model that a server answers with, here or in replicas.

    Attributes:
        model: hub id, folder, GGUF file or installed name; or miniature, the bundled one for videos
            (miniature:document reads pages).
        ray: on Ray; pip install 'sooner[ray]'.
        ray_address: of a cluster, HOST:PORT, or auto; by default `ray` starts one here.

    Raises:
        SoonerError: no model; or options of Ray without it.
    """

    model: str | None = option(None, metavar="MODEL", positional=True)
    models: Annotated[options.Models, MODELS] = field(default_factory=options.Models)
    settings: Annotated[ChatSettings, SERVER_OPTIONS] = field(default_factory=ChatSettings)
    ray: bool = False
    ray_address: str | None = option(None, metavar="ADDRESS")
    scaling: ReplicaSettings = field(default_factory=ReplicaSettings)

    def __post_init__(self) -> None:
        if self.model is None:
            raise SoonerError(
                "name a model: a hub id, a folder, or miniature, which needs no download (sooner "
                "serve miniature)"
            )
        if not self.ray and (self.ray_address or self.scaling != ReplicaSettings()):
            names = ", ".join(f"--{name.replace('_', '-')}" for name in vars(self.scaling))
            raise SoonerError(f"--ray-address, {names} are of --ray; add it, or leave them out")

    @cached_property
    def miniature(self) -> str | None:
        """Name of the miniature, if the model is one."""
        return miniature_of(self.model or "")

    def with_media_root(self) -> ServeJob:
        """Returns the same with the folder of a miniature's sample, if the model is one."""
        if self.miniature is None or self.settings.media_root is not None:
            return self
        root = str(miniatures.sample_of(self.miniature).parent)  # a first request needs no file
        return replace(self, settings=replace(self.settings, media_root=root))

    def load(self, debug: bool) -> Any:
        """Returns the pair.

        Args:
            debug: let the libraries print while they load.

        Raises:
            SoonerError: as `Models.load`; or it answers no chats.
        """
        from ..serve.model import check_servable, draft_placement
        from ..tasks.loading import pick_device

        if not debug:
            silence_libraries()
        models, miniature = self.models, self.miniature
        named = replace(models, model=None if miniature is not None else self.model)
        placement = method = None
        if self.settings.method == "parallel":
            placement = draft_placement(pick_device(models.draft_device or models.device))
            method = self.settings.method
        pair: Any = named.load(placement, miniature or "video", method, sees=False)
        check_servable(pair)
        return pair

    def from_root(self) -> ServeJob:
        """Returns the same with folders named from the root, which all machines share.

        Raises:
            SoonerError: a folder that is not there, which replicas would tell late.
        """
        settings, models = self.settings, self.models
        return replace(
            self,
            model=self.model if self.miniature is not None else options.from_root(self.model),
            models=replace(models, draft=options.from_root(models.draft)),
            settings=replace(
                settings,
                head=options.from_root(settings.head),
                media_root=options.from_root(settings.media_root),
            ),
        )

    def report(self, display: Display, url: str, more: str = "") -> None:
        """Say that requests are taken."""
        display.end_text()
        display.line(f"  {self.model} answers at {url}/v1{more} (Ctrl-C ends)", "bold")
        if self.settings.method == "parallel":
            display.line("  one request decodes at a time, its draft beside it; others wait")
        if self.miniature is not None:
            display.line(f"  the bundled {self.miniature} miniature {miniatures.MADE_UP}", "yellow")
            name = miniatures.sample_of(self.miniature).name
            display.line(f'  requests may name its sample: {{"url": "{name}"}}')


@from_settings
def serve(*, request: ServeJob, display: Display) -> None:
    """Answer OpenAI's API (chats, models), several requests at once, exactly.

    `GET /health` and `GET /ready` are for probes, `GET /metrics` is for Prometheus. With --ray, as
    many processes as --replicas says answer behind one address.
    """
    from ..serve.run import check_startable

    check_startable(request.settings)
    job = request.with_media_root()
    settings = job.settings
    if job.ray:
        _serve_on_ray(job, display)
        return
    from ..serve.model import ChatServer

    def stopping(count: int) -> None:
        seconds = f"at most {settings.grace_seconds:g} s (Ctrl-C: at once)"
        display.line(f"  stopping; requests under way: {count}, {seconds}")

    with display.loading():
        pair = job.load(display.debug)
    level = "info" if display.debug else "warning"
    chat = ChatServer(pair, job.model or "", settings, level)
    chat.handler.on_stop = stopping
    chat.run(partial(job.report, display))


def _serve_on_ray(job: ServeJob, display: Display) -> None:
    """Serve by several processes of a cluster, until this one is told to stop.

    Raises:
        SoonerError: ray is not installed; else as `RayServer.run`.
    """
    from ..ray.cluster import LOCAL
    from ..ray.serving import RayServer

    placed, replicas = job.from_root(), job.scaling
    names = (placed.models.draft, placed.settings.head, placed.settings.media_root)
    count = f"{replicas.replicas} to {replicas.maximum}"
    with display.job():
        RayServer(
            load=partial(placed.load, display.debug), model=job.model or "",
            settings=placed.settings, replicas=replicas, address=job.ray_address or LOCAL,
            model_files=None if job.miniature is not None else placed.model,
            paths=[path for path in names if path is not None and os.path.exists(path)],
            needs_gpu=not job.models.device.startswith("cpu"), on_stage=display.stage,
            on_ready=partial(job.report, display, more=f", replicas: {count}"), debug=display.debug,
        ).run()  # fmt: skip


def miniature_of(name: str) -> str | None:
    """Returns the bundled miniature that `miniature` or `miniature:NAME` means; `None` for other
    models.

    Raises:
        SoonerError: one that does not chat.
    """
    word, colon, which = name.partition(":")
    if word != MINIATURE:
        is_like = "/" not in name and get_close_matches(word, [MINIATURE], cutoff=TYPO)
        if is_like and not Path(name).exists():
            raise SoonerError(f"there is no model '{name}'; did you mean '{MINIATURE}'?")
        return None
    which = which if colon else MINIATURES[0]
    if which in miniatures.names() and which not in MINIATURES:
        raise SoonerError(
            f"the '{which}' miniature does not chat; serve {' or '.join(MINIATURES)} (policies: "
            "sooner act serve)"
        )
    check_choice("miniature", which, MINIATURES)
    return which
