"""A service over a tiny model, for tests of what the engine and OpenAI's paths do together."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import tiny
from serve.chatting import VOCAB
from serve.job_listener import until
from sooner import Autoregressive, Method
from sooner.serve.engine_options import JobOptions, ModelEngine
from sooner.serve.engine_thread import EngineThread


def target() -> Any:
    """A model whose ids are those of `spoken.byte_level`."""
    return tiny.model("qwen2", vocab=VOCAB)


@functools.cache
def shaken(noise: float = 0.1) -> Any:
    """A draft for it, which agrees with it about half the time."""
    draft, generator = copy.deepcopy(target()), torch.Generator().manual_seed(7)
    for weights in draft.parameters():
        if weights.ndim > 1:
            shake = torch.randn(weights.shape, generator=generator)
            weights.data += noise * weights.data.std() * shake
    return draft


@contextmanager
def serving(method: Method | None = None, max_rows: int = 4, **options: Any) -> Iterator[Any]:
    """The engine's thread over that model; `options` are the thread's."""
    method = method or Autoregressive()
    service = EngineThread(
        lambda: ModelEngine(target(), method, max_rows=max_rows),
        JobOptions(method),
        **options,
    )
    service.start()
    until(lambda: service.state != "warming")
    try:
        yield service
    finally:
        service.close(0)
