"""Threads of a pair of models, by the one rule of `methods/threads.py`."""

from __future__ import annotations

from ..methods.parallel.worker import place
from ..methods.threads import Threads
from .loading import ModelPair


def plan_threads(
    pair: ModelPair, requested: int | None = None, placement: str | None = "auto"
) -> Threads:
    """Returns threads of the target, and of a draft that works beside it in a process of its own.

    Args:
        pair: the models, loaded.
        requested: `--threads`.
        placement: where a draft would run, see `ParallelVLM`; `None`: none works beside the target.

    Raises:
        SoonerError: fewer than one thread is asked for.
    """
    is_parallel = False
    draft = pair.draft
    if draft is not None and draft.model is not None and placement is not None:  # on the first rank
        device = draft.device
        is_parallel = device.type == "cpu" and place(placement, device) != "thread"
    return Threads.plan(
        requested, is_miniature=pair.miniature is not None, processes=int(is_parallel)
    )
