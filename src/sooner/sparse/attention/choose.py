"""The backend of a device; each is imported only when it is chosen."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec

import torch

from ...errors import SoonerError, unknown
from .backend import Backend

logger = logging.getLogger("sooner")

BACKENDS = ("reference", "fused", "triton", "flex")
OLDEST = (3, 4)
"""The first Triton whose kernels take named tuples, and that has `triton.knobs`."""


def backend_for(device: torch.device, name: str | None = None) -> Backend:
    """The backend for a device: torch's fused kernels on CPUs, Triton on GPUs.

    A GPU without a usable Triton is named once in the log, and gets FlexAttention if torch can
    compile it there, else masks.

    Args:
        name: one of `BACKENDS`, to choose it by hand.

    Raises:
        SoonerError: an unknown name, or a backend that can't run on the device, with the reason.
    """
    if name is None:
        return _make(_best(device))
    if name not in BACKENDS:
        raise unknown("attention backend", name, BACKENDS)
    if name == "fused" and device.type != "cpu":
        raise SoonerError(f"attention backend 'fused' runs on CPUs, not on {device}; use 'triton'")
    missing = _without_triton(device) if name == "triton" else None
    if missing:
        raise SoonerError(f"attention backend 'triton' can't run: {missing}; use 'flex'")
    return _make(name)


def _best(device: torch.device) -> str:
    if device.type == "cpu":
        return "fused"
    if device.type != "cuda":
        return "reference"
    missing = _without_triton(device)
    if missing is None:
        return "triton"
    other = "flex" if find_spec("triton") else "reference"
    _say(missing, {"flex": "FlexAttention", "reference": "masks, slowly"}[other])
    return other


@cache
def _say(missing: str, other: str) -> None:
    """Once for each reason."""
    logger.warning("sparse attention without our Triton kernels: %s; using %s", missing, other)


def _without_triton(device: torch.device) -> str | None:
    """Why our kernels can't run on a device, if so."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    import triton

    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < OLDEST:
        return f"Triton {triton.__version__} is older than {'.'.join(map(str, OLDEST))}"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"there is no GPU, but {device}"
    return None


def _make(name: str) -> Backend:
    if name == "triton":
        from .triton import TritonBackend

        return TritonBackend()
    if name == "flex":
        from .flex import Flex

        return Flex()
    if name == "fused":
        from .cpu import Fused

        return Fused()
    from .reference import Reference

    return Reference()
