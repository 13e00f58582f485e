"""A few weights of every matrix of a decoder, read through the modules that apply them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SAMPLES = 8
"""Rows and columns of a matrix that are looked at: 64 weights."""

SCALE = 256.0
"""The scale of the unit vectors that are sent through a module: a large bias leaves the weight
its digits in half precision; a weight of 255 still fits into fp16.
"""

CHUNK = 512
"""Unit vectors that are sent at once where whole rows are asked for."""


@dataclass(frozen=True)
class WeightSample:
    """Holds weights of one matrix.

    Attributes:
        weights: `[SAMPLES, SAMPLES]` fp32, spread over the matrix; fewer of a smaller one.
        largest: magnitude of the largest weight of each of these rows, `[SAMPLES]`: what an
            8-bit format's step follows from.
        noise: what the module's number format may blur of a weight, `[SAMPLES]`; not kept.
    """

    weights: Tensor
    largest: Tensor
    noise: Tensor

    def encode(self) -> str:
        """Returns it as text: 16 bits a weight, in shares of its row's largest."""
        unit = self.largest.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
        shares = (self.weights / unit * 32767).round().clamp(-32767, 32767)
        data = self.largest.numpy().astype("<f4").tobytes() + shares.numpy().astype("<i2").tobytes()
        return f"{len(self.largest)}:{base64.b64encode(data).decode()}"

    @staticmethod
    def decode(text: str) -> WeightSample:
        """Reads what `encode` wrote."""
        count, _, coded = text.partition(":")
        rows, data = int(count), base64.b64decode(coded)
        largest = torch.from_numpy(np.frombuffer(data, "<f4", rows).copy())
        shares = torch.from_numpy(np.frombuffer(data, "<i2", offset=4 * rows).astype(np.float32))
        weights = shares.view(rows, -1) / 32767 * largest[:, None]
        return WeightSample(weights, largest, largest / 32767)


@torch.no_grad()
def sample_matrices(adapter: Any, with_largest: bool) -> dict[str, WeightSample]:
    """Returns a sample of each matrix of the text decoder, its norms and the tables at its ends,
    by name.

    A matrix is read by sending unit vectors through its module, so that what is found is what
    the module *does*, whatever the number format of its weights, and whatever an adapter such as
    an unmerged LoRA adds to them.

    Args:
        adapter: the target's adapter.
        with_largest: find `largest` of each, too, which takes whole rows; else it is left empty.
    """
    samples = {"embedding": _of_embedding(adapter.embedding)}
    for name, module in _matrices(adapter):
        samples[name] = _of_module(module, adapter.dtype, with_largest)
    for name, weight in _linear_matrices(adapter):
        samples[name] = _of_weight(weight)
    return samples


def is_quantised(adapter: Any) -> bool:
    """Some matrix of the decoder has its weights in a format of its own, not as plain floats."""
    inner = (getattr(module, "base_layer", module) for _, module in _matrices(adapter))
    return not all(_is_plain(getattr(module, "weight", None)) for module in inner)


def _matrices(adapter: Any) -> Iterator[tuple[str, nn.Module]]:
    """Modules that multiply by a matrix: outermost ones, so that an adapter's parts are in its."""

    def walk(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
        for name, child in module.named_children():
            if child is adapter.embedding:
                continue
            if _sizes(child) is not None:
                yield path + name, child
            else:
                yield from walk(child, f"{path}{name}.")

    yield from walk(adapter.decoder, "")
    yield "lm_head", adapter.head


def _linear_matrices(adapter: Any) -> Iterator[tuple[str, Tensor]]:
    """Parameters outside those modules, as `[rows, columns]`: norms, stacks of experts."""
    modules = [adapter.embedding, *(module for _, module in _matrices(adapter))]
    inside = {id(weight) for module in modules for weight in module.parameters()}
    for name, weight in adapter.decoder.named_parameters():
        if id(weight) not in inside and weight.is_floating_point():
            yield name, weight.view(-1, weight.shape[-1]) if weight.ndim else weight.view(1, 1)


def _sizes(module: Any) -> tuple[int, int] | None:
    """Inputs and outputs of a linear layer of any make; `None` for other modules."""
    for inputs, outputs in (("in_features", "out_features"), ("nx", "nf")):  # GPT-2's has `nx, nf`
        if isinstance(getattr(module, inputs, None), int) and callable(module):
            return getattr(module, inputs), getattr(module, outputs)
    return None


def _is_plain(weight: Any) -> bool:
    """An ordinary tensor of floats; formats of their own are subclasses, or integers."""
    return type(weight) in (nn.Parameter, Tensor) and weight.is_floating_point()


def _of_embedding(embedding: Any) -> WeightSample:
    tokens = _spread(int(embedding.weight.shape[0]))
    rows = embedding(tokens[None].to(embedding.weight.device))[0]  # [SAMPLES, hidden]
    return _of_weight(rows)


def _of_weight(weight: Tensor) -> WeightSample:
    """Returns the sample of a weight `[rows, columns]`."""
    rows = weight[_spread(weight.shape[0]).to(weight.device)].float().cpu()
    largest = rows.abs().amax(-1)
    return WeightSample(rows[:, _spread(rows.shape[1])], largest, torch.zeros_like(largest))


def _of_module(module: nn.Module, dtype: torch.dtype, with_largest: bool) -> WeightSample:
    inputs, outputs = _sizes(module)  # type: ignore[misc]
    weight: Any = getattr(module, "weight", None)
    if type(module) is nn.Linear and _is_plain(weight) and weight.device.type != "meta":
        return _of_weight(weight.detach())  # nothing but this matrix is applied
    device, dtype = _runs_at(module, dtype)
    rows, columns = _spread(outputs), _spread(inputs)
    bias = module(torch.zeros(1, inputs, device=device, dtype=dtype))[0].float().cpu()[rows]

    def read(places: Tensor) -> Tensor:
        """Columns `places` of the rows looked at, `[SAMPLES, places]`."""
        units = torch.zeros(len(places), inputs, device=device, dtype=dtype)
        units[torch.arange(len(places)), places] = SCALE
        return (module(units).float().cpu()[:, rows] - bias).T / SCALE

    largest = torch.empty(0)
    if with_largest:
        parts = torch.arange(inputs).split(CHUNK)
        largest = torch.stack([read(part).abs().amax(-1) for part in parts]).amax(0)
    noise = bias.abs() / SCALE * torch.finfo(dtype).eps
    return WeightSample(read(columns), largest, noise)


def _runs_at(module: nn.Module, dtype: torch.dtype) -> tuple[torch.device, torch.dtype]:
    """Device and dtype in which a module takes its input."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        weight = next(module.parameters())
    device = weight.device
    if device.type == "meta":  # accelerate brings it in for the call
        device = torch.device("cpu")
    return device, weight.dtype if weight.is_floating_point() else dtype


def _spread(size: int) -> Tensor:
    """`SAMPLES` of `size` places, first and last among them."""
    return torch.linspace(0, size - 1, min(SAMPLES, size)).long()
