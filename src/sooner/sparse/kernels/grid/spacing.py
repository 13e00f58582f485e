"""Grid indices as a kernel reads them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...pairs import GridIndex


class Spacings(NamedTuple):
    """A `GridIndex` for kernels, all `[heads]` int32; see there.

    A phase beyond the stride names no class, so its lines are switched off here.
    """

    stride: Tensor
    phase: Tensor
    hline: Tensor
    vline: Tensor
    slash: Tensor
    segment: Tensor
    sink: Tensor
    local: Tensor


class Passes(NamedTuple):
    """What a launch must know on the host.

    Attributes:
        strides: of heads with lines of a class, else 0, each head's.
        band: whether any head has a part that is not a class: own keys, segments, sinks.
    """

    strides: list[int]
    band: bool


def spacings(index: GridIndex) -> Spacings:
    """On the index's device."""
    known = index.phase < index.stride
    columns = {
        **vars(index),
        "phase": index.phase % index.stride,
        "hline": index.hline & known,
        "vline": index.vline & known,
    }
    return Spacings(*(columns[name].to(torch.int32).contiguous() for name in Spacings._fields))


def passes(spacing: Spacings) -> Passes:
    """Asks the device once."""
    classed = (spacing.hline | spacing.slash) > 0
    banded = (spacing.slash == 0) | (spacing.segment > 0) | (spacing.sink > 0) | (spacing.local > 1)
    strides, band = torch.stack([spacing.stride * classed, banded.to(torch.int32)]).tolist()
    return Passes(strides, any(band))
