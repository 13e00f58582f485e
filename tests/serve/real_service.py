"""A service over a tiny model, for tests of what the engine and OpenAI's paths do together."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import LogitsProcessorList

import tiny
from serve.chatting import VOCAB, served
from serve.job_listener import until
from sooner import Autoregressive, Engine, Method
from sooner.engine.request import RequestOptions
from sooner.serve.engine_thread import EngineThread, ServedRequest
from sooner.serve.openai.planning import Planner


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


def planned(
    method: Method,
    ids: list[int],
    limit: int,
    *,
    sampling: dict[str, Any],
    prediction: list[int] | None = None,
    grammar: Any = None,
    stops: Sequence[int] = (),
    seed: int | None = None,
    logprobs: int | None = None,
    num_draft_tokens: int | None = None,
    **fields: Any,
) -> ServedRequest:
    """A request as a server by `method` makes it of a client's."""
    tokens = torch.tensor([ids])
    options = {**sampling, "max_new_tokens": limit, "eos_token_id": sorted(stops) or [-1]}
    if grammar is not None:
        grammar.width = len(ids)
        options["logits_processor"] = LogitsProcessorList([grammar])
    planner = Planner(served(method=method))
    method, on_session = planner.decoding(prediction or (), len(ids) + limit)
    return ServedRequest(
        inputs={"input_ids": tokens, "attention_mask": torch.ones_like(tokens)},
        options=RequestOptions(
            options, seed, logprobs=logprobs, num_draft_tokens=num_draft_tokens,
            on_session=on_session,
        ),
        method=method,
        rows=1, id="a", prompt_tokens=len(ids), stop_token_ids=frozenset(stops), grammar=grammar,
        **fields,
    )  # fmt: skip


@contextmanager
def serving(method: Method | None = None, max_rows: int = 4, **options: Any) -> Iterator[Any]:
    """The engine's thread over that model; `options` are the thread's."""
    method = method or Autoregressive()
    service = EngineThread(
        lambda: Engine(target(), method, max_rows=max_rows),
        **options,
    )
    service.method = method  # type: ignore[attr-defined]
    service.start()
    until(lambda: service.state != "warming")
    try:
        yield service
    finally:
        service.close(0)
