"""The whole of `sooner bench serve`: servers started, gate passed, loads in turns, figures."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from sooner.errors import SoonerError
from sooner.tasks.loading import load_pair

from ..cores import pinned, split_cores
from ..run import Keep, Progress, Recorder
from .bench import ServeBench
from .direct import Direct
from .goals import goals
from .load import LoadProcess
from .requests import questions
from .servers import Servers
from .settings import ServeBenchSettings

NEEDED = ("fastapi", "uvicorn", "prometheus_client", "httpx")


def run(
    settings: ServeBenchSettings, progress: Progress = print, keep: Keep | None = None
) -> dict[str, Any]:
    """Measure and return the result object.

    Args:
        keep: handed the result as far as it is, after each part.

    Returns:
        `parity` of each arm; `clients`, `text`, a row for each arm and load; `mix`,
        `split`, `goals`, `provenance`.

    Raises:
        SoonerError: a package is missing, or a server does not start.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SoonerError(
            f"the servers and their clients need {', '.join(missing)}, not installed; pip install "
            "'sooner[serve]' 'sooner-lab[bench]'"
        )
    torch.set_num_threads(settings.threads)
    server_cores, client_cores = split_cores()
    progress("loading")
    pair = load_pair(settings.model, settings.draft, device=settings.device, dtype=settings.dtype)
    model = pair.target.model
    name = pair.target.name if settings.model else f"miniature:{pair.miniature}"
    split = {"server": server_cores, "clients": client_cores}
    recorder = Recorder("serve", settings, goals, keep, model=name, split=split)
    recorder.origin(model.device, model.dtype, settings.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        requests = questions(settings, folder)
        clients = stack.enter_context(LoadProcess(client_cores))
        progress("starting servers")
        servers = stack.enter_context(Servers(settings, server_cores))
        stack.enter_context(pinned(server_cores))
        direct = Direct(pair, settings, requests)
        bench = ServeBench(settings, requests, direct, servers, clients, progress)
        bench.warm_up()
        recorder.result["mix"] = bench.mix()
        for part in settings.parts:
            recorder.add(**getattr(bench, f"{part}_part")(), parity=bench.report())
    return recorder.result
