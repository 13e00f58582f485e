"""An engine captures the graphs of all steps that its requests may ask for before the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .buckets import ENTRIES

MAX_TOKENS = 512
"""Tokens of a row; those that end before have met the blocks by which they came so far."""

NO_TOKEN = 1 << 30
"""A stop id that no vocabulary has."""

OFFSETS = (1, 2, 4)
"""Tokens by which a draft is behind the target: what followed its own, or a few more."""


def warm_graphs(engine: Any, inputs: Mapping[str, Any]) -> None:
    """Take steps of every bucket, greedy and drawn.

    Args:
        engine: a `sooner.Engine` that is idle and launches its steps as graphs.
        inputs: a short prompt of one row.

    Raises:
        Exception: that a request ended with.
    """
    rows = engine.max_rows
    while rows:
        for do_sample in (False, True):
            if not _warm(engine, inputs, rows, do_sample):
                return
        rows = 1 << (rows - 1).bit_length() >> 1


def _warm(engine: Any, inputs: Mapping[str, Any], rows: int, do_sample: bool) -> bool:
    """Warms up steps for so many rows; returns whether there are graphs."""
    longest, width = engine.longest, int(inputs["input_ids"].shape[1])
    new = MAX_TOKENS if longest is None else min(MAX_TOKENS, longest - width)
    options = {"max_new_tokens": new, "do_sample": do_sample, "eos_token_id": NO_TOKEN}
    requests = [engine.add_request(inputs, **options) for _ in range(rows)]
    while engine.waiting or engine.prefilling is not None:
        engine.step()
    graphs = None if engine.batch is None else engine.batch.session.graphs
    if graphs is not None:
        for entries in ENTRIES:
            if entries > graphs.entries or engine.batch is None:
                break
            graphs.minimum = entries
            for session in engine.batch.sessions.all:
                session.max_draft = entries - 1
            engine.step()
            engine.step()  # whose draft is as long as that
        graphs.minimum = 1
        if engine.batch is not None:
            _forward_draft(engine.batch.drafter)
    for request in requests:
        engine.cancel(request)
    engine.run()
    for request in requests:
        if request.error is not None:
            raise request.error
    return graphs is not None


@torch.inference_mode()
def _forward_draft(drafter: Any) -> None:
    """Let a draft model forward blocks as wide as it is behind; nothing of them is committed."""
    runner: Any = getattr(drafter, "runner", None)
    if getattr(runner, "graphs", None) is None:
        return
    for width in OFFSETS:
        shape = (len(runner.lengths), width)
        runner.forward_chain(torch.zeros(shape, dtype=torch.long, device=drafter.adapter.device))
