"""Runs `sooner serve MODEL`: the engine's thread, processes that decode media, uvicorn, the end."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..engine.scheduler import Engine, TokenPace
from ..methods import Method
from ..tasks.loading import Loaded, ModelPair
from .app import DrainingServer, create_app
from .engine_thread import EngineThread
from .metrics import ServerMetrics
from .model import kv_memory, limit_to_row, served_model, serving_method
from .openai.app import OpenAIHandler
from .run import bind, url
from .settings import ChatSettings

logger = logging.getLogger("sooner.serve")

Page = Callable[..., Any]
"""Puts a page on an application: `page(app, service=engine_thread)`."""
WARM_TOKENS = 8
"""New tokens of the request that a new engine is tried with."""


class ChatServer:
    """Holds one model behind OpenAI's API.

    Args:
        pair: the models, loaded.
        model_name: the model as it was named, one of the names that clients may use.
        settings: how.
        on_ready: called once the engine has answered a request of its own; requests are taken.
        on_stop: told how many requests are under way, if any are, when the server is told to stop.
        log_level: uvicorn's.
        page: puts a page for browsers on the application; handed that and the engine's thread.

    Attributes:
        app: answers requests, once it is started.

    Raises:
        SoonerError: the method can't be run with these models.
    """

    def __init__(
        self,
        pair: ModelPair,
        model_name: str,
        settings: ChatSettings,
        on_ready: Callable[[], None] = lambda: None,
        on_stop: Callable[[int], None] = lambda count: None,
        log_level: str = "warning",
        page: Page | None = None,
    ) -> None:
        self.target = pair.target
        method = serving_method(pair, settings)
        self.settings = settings = limit_to_row(settings, method)
        self._standing = getattr(getattr(method, "method", method), "standing", None)
        memory = kv_memory(pair, method, settings)
        served = served_model(pair, model_name, settings, method, memory)
        self.prompts: Any = served.prepare
        metrics = ServerMetrics(
            served.name,
            lambda: self.thread.load(),
            lambda: time.monotonic() - self.thread.last_tick,
        )
        self.thread = EngineThread(
            partial(build_engine, pair.target.model, method, settings, memory.pages),
            max_requests=settings.max_rows + settings.max_queue,
            warm_up=self._warm_up,
            on_ready=on_ready,
            listener=metrics,
        )
        self.handler = OpenAIHandler(served, self.thread, settings, metrics, on_stop=on_stop)
        self.app = create_app(
            self.handler, page=None if page is None else partial(page, service=self.thread)
        )
        self.server = DrainingServer(self.app, settings, log_level, self.handler)

    def run(self, sockets: list[Any]) -> None:
        """Serve until the process is told to stop (SIGINT, SIGTERM), or the engine is lost.

        Raises:
            SoonerError: the engine was lost.
        """
        try:
            self.server.run(sockets)
        finally:
            self.close()

    def close(self) -> None:
        """End processes beside the engine's thread, which `handler.close` ends."""
        self.prompts.close()
        if self._standing is not None:
            self._standing.close()  # a draft's process
        gc.unfreeze()  # see `_warm_up`; libraries complain at the end about what is left

    def _warm_up(self, engine: Any) -> None:
        threading.Thread(target=self.prompts.media.processes.start, daemon=True).start()
        warm_up(self.target, engine)
        # What is there now stays, so a full collection need not look at it, and is short. It comes
        # once a quarter as many objects are new as the last one found, hence the second one: what
        # little is left in cycles would pile up for hundreds of requests.
        gc.collect()
        gc.freeze()
        gc.collect()


def run_chat(
    pair: ModelPair,
    model_name: str,
    settings: ChatSettings,
    on_ready: Callable[[str], None] = lambda url: None,
    on_stop: Callable[[int], None] = lambda count: None,
    log_level: str = "warning",
    page: Page | None = None,
) -> None:
    """Serve until the process is told to stop; then answer what is under way.

    Args:
        on_ready: told the address once requests are taken.
        on_stop, page: as `ChatServer`'s.

    Raises:
        SoonerError: the address is taken, the method can't be run, or the engine was lost.
    """
    with bind(settings) as listening:
        tell = partial(on_ready, url(listening))
        ChatServer(pair, model_name, settings, tell, on_stop, log_level, page).run([listening])


def build_engine(model: Any, method: Method, settings: ChatSettings, pages: int) -> Any:
    """The engine, as the thread that owns it makes it."""
    limit = settings.time_per_token_ms
    return Engine(
        model, method, max_rows=settings.max_rows, prefill_chunk=settings.prefill_chunk,
        pages=pages, prefix_caching=settings.prefix_caching, compile=settings.compile,
        pace=None if limit is None else TokenPace(limit / 1e3),
    )  # fmt: skip


def warm_up(target: Loaded, engine: Any) -> None:
    """Have an engine answer a request of its own, so that the first client waits for nothing.

    Raises:
        Exception: that the request ended with; the engine is of no use then.
    """
    ids = target.tokenizer("1 2 3", add_special_tokens=False)["input_ids"] or [0]
    tokens = torch.tensor([ids])  # [1, tokens]
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    request = engine.add_request(inputs, max_new_tokens=WARM_TOKENS)
    while not engine.is_idle:
        engine.step()
    if request.error is not None:
        raise request.error
    if engine.launches_graphs:
        from ..engine.graphs.steps import warm_graphs  # on GPUs

        warm_graphs(engine, inputs)
