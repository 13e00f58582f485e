"""Where a head is trained: on the CPU plainly, on GPUs through accelerate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Workers(Protocol):
    """The processes of one training."""

    rank: int
    count: int

    def prepare(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]: ...

    def backward(self, loss: Tensor) -> None: ...

    def wait(self) -> None: ...


class Alone:
    """One process, one device."""

    rank, count = 0, 1

    def prepare(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        return module, optimizer

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def wait(self) -> None:
        """Nobody to wait for."""


class Accelerated:
    """The processes that `accelerate launch` began, one for each GPU."""

    def __init__(self) -> None:
        from accelerate import Accelerator

        self.accelerator = Accelerator()
        self.rank = self.accelerator.process_index
        self.count = self.accelerator.num_processes

    def prepare(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        prepared: Any = self.accelerator.prepare(module, optimizer)
        return prepared

    def backward(self, loss: Tensor) -> None:
        self.accelerator.backward(loss)

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()


def workers(device: torch.device) -> Workers:
    """For a target on `device`."""
    return Alone() if device.type == "cpu" else Accelerated()


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """While it lasts, no weight of `model` gets a gradient, and it is in eval mode."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    was_training = model.training
    for weight in trained:
        weight.requires_grad_(False)
    model.eval()
    try:
        yield
    finally:
        for weight in trained:
            weight.requires_grad_(True)
        model.train(was_training)
