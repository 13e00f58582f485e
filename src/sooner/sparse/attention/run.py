"""Sparse attention of one layer by the backend that fits the device."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from ...checks import check_choice
from ...errors import SoonerError
from ..modality import PromptLayout
from ..pairs import Index
from ..patterns import Boundary, HeadPattern, Pattern, build
from ..plane import Plane, plane_of
from ..probe import LAST, Probe, probe
from .fused import Fused
from .partial import Backend, Partial, Reference, States

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


@dataclass(frozen=True, eq=False)
class HeadGroup:
    """Heads that share a plane and a kind.

    Attributes:
        heads: their numbers, `[picked]`.
        index: what they see; `None` for dense ones.
        estimate: the probe behind dynamic patterns, in the order of `heads`.
    """

    plane: Plane
    heads: Tensor
    index: Index | None
    estimate: Probe | None

    @property
    def pairs(self) -> Tensor:
        """Query-key pairs that each of the heads computes, counted exactly, `[picked]` int64."""
        if self.index is None:
            return torch.full_like(self.heads, self.plane.pairs)
        return self.index.pairs(self.plane)


def sparse_attention(
    states: States, layout: PromptLayout, patterns: Sequence[HeadPattern], backend: Backend
) -> Partial:
    """Returns causal attention of one row, each head by its pattern.

    Args:
        states: rotated queries, keys and values of the row.
        layout: what its tokens are; padding gets zeros.
        patterns: one for each query head.
        backend: what runs them.
    """
    into = Partial.empty(states)
    for job in jobs(states, layout, patterns):
        backend.attend(states, job.plane, job.index, job.heads, into)
    return into


def jobs(
    states: States, layout: PromptLayout, patterns: Sequence[HeadPattern]
) -> Iterator[HeadGroup]:
    """Yields what there is to execute, in no particular order; planes are made and probed once."""
    regions: dict[str, list[tuple[int, Pattern]]] = defaultdict(list)
    for head, pattern in enumerate(patterns):
        parts = pattern.parts(layout) if isinstance(pattern, Boundary) else [("", pattern)]
        for region, inner in parts:
            regions[region].append((head, inner))
    for region, members in regions.items():
        yield from _kinds(states, plane_of(layout, region), members)


def _kinds(states: States, plane: Plane, members: list[tuple[int, Pattern]]) -> Iterator[HeadGroup]:
    """Yields one job for each kind of pattern, and for each size of probe."""
    groups: dict[tuple[str, bool, int], list[tuple[int, Pattern]]] = defaultdict(list)
    for head, pattern in members:
        last = getattr(pattern, "last_q", LAST)
        groups[pattern.kind, pattern.dynamic, last].append((head, pattern))
    for (kind, dynamic, last), group in groups.items():
        heads = torch.tensor([head for head, _ in group], device=plane.keys.device)
        estimate = None
        if dynamic:
            estimate = probe(states.queries, states.keys, plane, states.scale, heads, last)
        chosen = [pattern for _, pattern in group]
        index = None if kind == "dense" else build(chosen, plane, estimate)
        yield HeadGroup(plane, heads, index, estimate)
