"""The arguments that a family's own forward calls its decoder with, and padded rows packed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.interface import Prompt
from ..errors import UnsupportedError
from .hooks import ForwardHooks


class Packing:
    """Moves the real tokens of padded rows to the front."""

    def __init__(self, mask: Tensor) -> None:
        self.lengths: list[int] = mask.sum(1).tolist()
        self.rows, self.padded = mask.shape
        self.width = max(self.lengths)
        order = torch.where(mask, 0, 1).argsort(dim=1, stable=True)
        self.order = order[:, : self.width]
        self.is_identity = bool(mask.all())
        sizes = torch.tensor(self.lengths, device=mask.device)
        self.inside = torch.arange(self.width, device=mask.device)[None] < sizes[:, None]

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> Packing:
        """Returns the packing of a processor's output: by its `attention_mask`, or of rows without
        padding."""
        ids, mask = inputs["input_ids"], inputs.get("attention_mask")
        return cls((torch.ones_like(ids) if mask is None else mask).bool())

    def __call__(self, states: Tensor) -> Tensor:
        """`[rows, padded, ...]` to `[rows, width, ...]`."""
        if self.is_identity:
            return states
        rows = torch.arange(self.rows, device=states.device)[:, None]
        return states[rows, self.order.to(states.device)]


def real_tokens(prompt: Prompt) -> Tensor:
    """Returns which tokens of a packed prompt are real, `[rows, width]` bool."""
    device = prompt.visual.device
    sizes = torch.tensor(prompt.lengths, device=device)
    return torch.arange(prompt.width, device=device)[None] < sizes[:, None]


def next_positions(positions: Tensor, lengths: list[int]) -> Tensor:
    """One behind each row's last prompt token, axis by axis, as HF's `generate` goes on.

    It is not one behind the *largest*: a long video's time axis may be ahead of the text after it.
    """
    last = torch.tensor(lengths, device=positions.device) - 1
    rows = torch.arange(len(lengths), device=positions.device)
    return positions[..., rows, last] + 1


def each_axis(positions: Tensor, packed: Packing) -> Tensor:
    """Pack positions `[rows, width]`, or `[axes, rows, width]` axis by axis."""
    if positions.ndim == 2:
        return packed(positions)
    return torch.stack([packed(axis) for axis in positions])


class _DecoderCalledError(Exception):
    """Carries the decoder's arguments out of the family's forward."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__("the prompt reached the decoder")
        self.arguments = arguments


def decoder_arguments(body: nn.Module, decoder: nn.Module, inputs: Mapping[str, Any]) -> dict:
    """Returns the keyword arguments that `body(**inputs)` would call `decoder` with.

    The hook answers only to this thread, so another one may decode with the same model meanwhile.
    """

    def stop(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        names = inspect.signature(module.forward).parameters  # for what comes without a name
        raise _DecoderCalledError({**dict(zip(names, args, strict=False)), **kwargs})

    with ForwardHooks() as hooks:
        hooks.before(decoder, stop)
        try:
            body(**inputs)
        except _DecoderCalledError as call:
            return call.arguments
    raise UnsupportedError(
        f"{type(body).__name__} never called its decoder with the inputs {sorted(inputs)}"
    )
