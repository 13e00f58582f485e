"""The processes that hold one sharded model, and how rank 0 decides for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from ..errors import SoonerError
from .base import is_sharded

STATUS = 1
"""Entries of a message that say whether rank 0 still decodes."""


class Ranks:
    """A process group whose members run the same program on shards of one model.

    A forward of such a model is collective: all ranks must ask for the same one. What depends on
    clocks or draws, which differ from rank to rank, is therefore decided on rank 0 and broadcast.

    Args:
        group: of `torch.distributed`; `None` is the whole world.
        device: where its backend takes tensors from.
    """

    def __init__(self, group: Any, device: torch.device) -> None:
        self.group, self.device = group, device

    @staticmethod
    def of(model: Any) -> Ranks | None:
        """Returns the ranks of a model that a `tp_plan` sharded; `None` for a whole one."""
        if not is_sharded(model):
            return None
        mesh = model._device_mesh
        group = mesh["tp"] if "tp" in (mesh.mesh_dim_names or ()) else mesh
        device = torch.device(mesh.device_type)  # on CUDA the one that the process is bound to
        return Ranks(group.get_group(), device)

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process is the one that decides, rank 0 of the group."""
        return distributed.get_rank(self.group) == 0

    def broadcast(self, message: Tensor) -> Tensor:
        """Returns rank 0's `message`, on every rank; elsewhere it is written over."""
        first = 0 if self.group is None else distributed.get_global_rank(self.group, 0)
        distributed.broadcast(message, first, group=self.group)
        return message


class Decisions:
    """What rank 0 of a run decides, round by round, as messages of one size.

    Since every message has the same size, "I stopped" can take the place of any: an exception on
    rank 0 ends the run on all ranks, which stay in step for the next one. It can't be told to
    ranks that are in the middle of a forward, which wait there for their shard's sums.

    Args:
        ranks: those that receive.
        size: most numbers of a message.
    """

    def __init__(self, ranks: Ranks, size: int) -> None:
        self.ranks, self.size = ranks, size
        self.awaited = False  # the next thing that all ranks do is a message
        self.stopped = False

    def decide(self, make: Callable[[], Sequence[Tensor]]) -> Tensor:
        """Returns what rank 0's `make` returns, flat and padded to `size`; others never call it.

        Raises:
            SoonerError: on the other ranks, where rank 0's `make` raised something.
        """
        message = torch.zeros(STATUS + self.size, dtype=torch.long, device=self.ranks.device)
        if not self.ranks.is_rank_zero:
            return self._receive(message)
        try:
            parts = [part.reshape(-1).to(message.device) for part in make()]
            flat = torch.cat(parts)
            message[STATUS : STATUS + len(flat)] = flat
        except BaseException:
            self.stop()
            raise
        return self.ranks.broadcast(message)[STATUS:]

    def _receive(self, message: Tensor) -> Tensor:
        if bool(self.ranks.broadcast(message)[0]):
            self.stopped = True
            raise SoonerError("the first rank stopped decoding; what it says tells why")
        return message[STATUS:]

    def stop(self) -> None:
        """Tell that the run is over before its end, or receive rank 0's last message."""
        if self.stopped:
            return
        self.stopped = True
        message = torch.zeros(STATUS + self.size, dtype=torch.long, device=self.ranks.device)
        message[0] = 1
        self.ranks.broadcast(message)

    def close(self, is_over: bool) -> None:
        """Is called when the run ends, by itself or by an exception."""
        if self.awaited and not is_over:
            self.stop()
