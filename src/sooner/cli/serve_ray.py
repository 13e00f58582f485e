"""`sooner serve --ray`: the same server by several processes of a cluster."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from functools import partial

from ..errors import SoonerError
from ..serve.settings import ReplicaSettings
from .display import Display
from .parse_ray import MISSING
from .served_models import ServedModels


def serve_on_ray(
    served: ServedModels, address: str, replicas: ReplicaSettings, display: Display
) -> None:
    """Serve until the process is told to stop.

    Raises:
        SoonerError: ray is not installed; else as `RayServer.run`.
    """
    if importlib.util.find_spec("ray") is None:
        raise SoonerError(MISSING)
    if address.startswith("ray://"):
        raise SoonerError(
            f"'{address}' is Ray's client, which passes no streams on; run the command on a "
            "machine of the cluster, with --ray auto"
        )
    from ..ray.serving import RayServer

    name, served = served, _absolute(served)
    settings, models = served.settings, served.models
    names = (models.draft, served.adapter, settings.head, settings.media_root)
    count = "1 replica" if replicas.maximum == 1 else f"{replicas.replicas} replicas"
    if replicas.maximum > replicas.replicas:
        count = f"{replicas.replicas} to {replicas.maximum} replicas"
    with display.job():
        RayServer(
            load=served.load,
            model=name.model,
            settings=settings,
            replicas=replicas,
            address=address,
            model_files=None if served.small is not None else served.model,
            paths=[path for path in names if path is not None and os.path.exists(path)],
            needs_gpu=not models.device.startswith("cpu"),
            on_stage=display.stage,
            on_ready=partial(name.tell, display, more=f" with {count}"),
            debug=served.debug,
        ).run()


def _absolute(served: ServedModels) -> ServedModels:
    """With folders named from the root, so that every machine means the same by them.

    Raises:
        SoonerError: a folder that is not there, which replicas would tell late.
    """
    settings, models = served.settings, served.models
    return replace(
        served,
        model=(served.small is None and _from_root(served.model)) or served.model,
        adapter=_from_root(served.adapter),
        models=replace(models, draft=_from_root(models.draft)),
        settings=replace(
            settings,
            head=_from_root(settings.head),
            media_root=_from_root(settings.media_root),
        ),
    )


def _from_root(name: str | None) -> str | None:
    if name is None:
        return None
    if not os.path.exists(os.path.expanduser(name)):
        if name.startswith(("/", ".", "~")):
            raise SoonerError(f"folder '{name}' does not exist; check the path")
        return name  # a hub id
    return os.path.abspath(os.path.expanduser(name))
