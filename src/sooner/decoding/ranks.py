"""The processes that hold one sharded model, and how the first of them decides for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from ..errors import SoonerError

STATUS = 1
"""Entries of a message that say whether the leader still decodes."""


class Ranks:
    """A process group whose members run the same program on shards of one model.

    A forward of such a model is collective: all ranks must ask for the same one. What depends on
    clocks or draws, which differ from rank to rank, is therefore decided on the first and told.

    Args:
        group: of `torch.distributed`; `None` is the whole world.
        device: where its backend takes tensors from.
    """

    def __init__(self, group: Any, device: torch.device) -> None:
        self.group, self.device = group, device

    @staticmethod
    def of(model: Any) -> Ranks | None:
        """The ranks of a model that transformers sharded by a `tp_plan`; `None` for a whole one."""
        mesh = getattr(model, "_device_mesh", None)
        if mesh is None or (getattr(model, "_tp_size", None) or 1) == 1:
            return None
        group = mesh["tp"] if "tp" in (mesh.mesh_dim_names or ()) else mesh
        device = torch.device(mesh.device_type)  # on CUDA the one that the process is bound to
        return Ranks(group.get_group(), device)

    @property
    def leads(self) -> bool:
        """Whether this process is the one that decides."""
        return distributed.get_rank(self.group) == 0

    def tell(self, message: Tensor) -> Tensor:
        """The leader's `message`, on every rank; elsewhere it is written over."""
        first = 0 if self.group is None else distributed.get_global_rank(self.group, 0)
        distributed.broadcast(message, first, group=self.group)
        return message

    def agree(self, number: int) -> int:
        """The leader's `number`."""
        return int(self.tell(torch.tensor([number], device=self.device)))


class Decisions:
    """What the leader of a run decides, round by round, as messages of one size.

    Since every message has the same size, "I stopped" can take the place of any: an exception on
    the leader ends the run on all ranks, which stay in step for the next one. It can't be told to
    ranks that are in the middle of a forward, which wait there for their shard's sums.

    Args:
        ranks: who listens.
        size: most numbers of a message.
    """

    def __init__(self, ranks: Ranks, size: int) -> None:
        self.ranks, self.size = ranks, size
        self.awaited = False  # the next thing that all ranks do is a message
        self.stopped = False

    def decide(self, make: Callable[[], Sequence[Tensor]]) -> Tensor:
        """What the leader's `make` returns, flat and padded to `size`; others never call it.

        Raises:
            SoonerError: on the other ranks, where the leader's `make` raised something.
        """
        message = torch.zeros(STATUS + self.size, dtype=torch.long, device=self.ranks.device)
        if not self.ranks.leads:
            return self._hear(message)
        try:
            parts = [part.reshape(-1).to(message.device) for part in make()]
            flat = torch.cat(parts)
            message[STATUS : STATUS + len(flat)] = flat
        except BaseException:
            self.stop()
            raise
        return self.ranks.tell(message)[STATUS:]

    def _hear(self, message: Tensor) -> Tensor:
        if bool(self.ranks.tell(message)[0]):
            self.stopped = True
            raise SoonerError("the first rank stopped decoding; what it says tells why")
        return message[STATUS:]

    def stop(self) -> None:
        """Tell that the run is over before its end, or hear the leader's last message."""
        if self.stopped:
            return
        self.stopped = True
        message = torch.zeros(STATUS + self.size, dtype=torch.long, device=self.ranks.device)
        message[0] = 1
        self.ranks.tell(message)

    def close(self, is_over: bool) -> None:
        """The run ends, by itself or by an exception."""
        if self.awaited and not is_over:
            self.stop()
