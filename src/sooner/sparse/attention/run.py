"""Sparse attention of one layer by the backend that fits the device."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec

import torch

from ...checks import check_choice
from ...errors import SoonerError
from ..modality import PromptLayout
from ..patterns import HeadPattern
from .fused import Fused
from .partial import Backend, Partial, Reference, States
from .work import HeadGroup, layer_work

logger = logging.getLogger("sooner")

BACKENDS = ("reference", "fused", "triton")


def backend_for(device: torch.device, name: str | None = None) -> Backend:
    """Returns the backend for a device: torch's fused kernels on CPUs, Triton on GPUs.

    A GPU without Triton is named once in the log, and gets masks, which are slow.

    Args:
        name: one of `BACKENDS`, to choose it by hand.

    Raises:
        SoonerError: an unknown name, or a backend that can't run on the device, with the reason.
    """
    missing = _without_triton(device)
    if name is None:
        name = "fused" if device.type == "cpu" else "reference" if missing else "triton"
        if name == "reference":
            _emit(str(missing))
    check_choice("attention backend", name, BACKENDS)
    if name == "fused" and device.type != "cpu":
        raise SoonerError(f"attention backend 'fused' runs on CPUs, not on {device}; use 'triton'")
    if name == "triton" and missing:
        raise SoonerError(f"attention backend 'triton' can't run: {missing}; use 'reference'")
    if name == "triton":
        from .triton import TritonBackend

        return TritonBackend()
    return Fused() if name == "fused" else Reference()


@cache
def _emit(missing: str) -> None:
    """Once for each reason."""
    logger.warning("sparse attention without our Triton kernels: %s; using masks, slowly", missing)


def _without_triton(device: torch.device) -> str | None:
    """Returns why our kernels can't run on a device, if so."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"there is no GPU, but {device}"
    return None


def sparse_attention(
    states: States, layout: PromptLayout, patterns: Sequence[HeadPattern], backend: Backend
) -> Partial:
    """Returns causal attention of one row, in the dtype of its queries; see `Backend.layer`.

    Args:
        states: rotated queries, keys and values of the row.
        layout: what its tokens are; padding gets zeros.
        patterns: one for each query head.
        backend: what runs them.
    """
    q, k, v = (part[None] for part in (states.queries, states.keys, states.values))
    output, lse, _ = backend.layer(States(q, k, v, states.scale), [layout], [patterns])
    return Partial(output[0], lse[0])


def jobs(
    states: States, layout: PromptLayout, patterns: Sequence[HeadPattern]
) -> Iterator[HeadGroup]:
    """Yields what there is to execute by plane and kind, in no particular order."""
    yield from layer_work(states, [layout], [patterns]).groups
