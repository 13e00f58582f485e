"""Memory that a process shares with those it forks later."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64

Shape = tuple[tuple[int, ...], torch.dtype]


class Arena:
    """One anonymous mapping, handed out piece by piece; pages cost nothing until they are written.

    There is no file behind it, so nothing is left however the processes end.

    Args:
        size: in bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.memory = mmap.mmap(-1, size)

    def reset(self) -> None:
        """Hand out from the beginning again; who holds earlier pieces must be done with them."""
        self.used = 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The next piece as a tensor, with whatever it holds.

        The same calls after `reset` give the same pieces in every process that shares the arena.

        Raises:
            MemoryError: it is full.
        """
        begin = self.used
        self.used += room(shape, dtype)
        if self.used > self.size:
            raise MemoryError(f"an arena of {self.size} bytes has no room for {self.used}")
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=begin).view(shape)


def take(arena: Arena | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The next piece of an arena; without one, zeros in memory of this process alone."""
    return torch.zeros(shape, dtype=dtype) if arena is None else arena.take(shape, dtype)


def room(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes that a piece takes."""
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Parcel:
    """Inputs of a model whose tensors lie in an arena, as they travel.

    Attributes:
        shapes: shape and type of each tensor, in the order in which they were laid down.
        others: what is no tensor.
    """

    shapes: dict[str, Shape]
    others: dict[str, Any]

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> Parcel:
        """What `inputs` will be; nothing is laid down yet."""
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        return cls(
            {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()},
            {name: value for name, value in inputs.items() if name not in tensors},
        )

    @property
    def room(self) -> int:
        """Bytes that it takes."""
        return sum(room(*told) for told in self.shapes.values())

    def open(self, arena: Arena) -> dict[str, Any]:
        """The inputs, at the next pieces of the arena."""
        return {name: arena.take(*told) for name, told in self.shapes.items()} | self.others
