"""What stands for CUDA graphs where there is no GPU: it re-runs what a graph would replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from sooner.engine.graphs.recorder import Replay, Run


def hook_count(model: torch.nn.Module) -> int:
    """Hooks in front of and behind all modules of a model."""
    return sum(
        len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()
    )


class _Watched(TorchDispatchMode):
    """Addresses of what operations read and write that was there before, and what they make."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[tuple[str, int]] = []
        self.known: set[int] = set()  # their storages
        self.made: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_iter((args, kwargs)):
            if isinstance(value, Tensor) and value.numel() and _address(value) not in self.made:
                self.outside.append((str(func), value.data_ptr()))
                self.known.add(_address(value))
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor) and value.numel() and _address(value) not in self.known:
                self.made.setdefault(_address(value), value)
        return result


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class StandIn:
    """A recorder that runs what a graph would replay, on the same tensors.

    As a graph would, it reads and writes at the addresses of the first time: where a later replay,
    be it of another call, would take another tensor, it fails. What a replay makes is gone with
    the next one, in whichever record: it is written over with NaN.

    Attributes:
        recorded, replayed: how often.
    """

    def __init__(self) -> None:
        self.nbytes = self.recorded = self.replayed = 0
        self._pool: list[Tensor] = []

    def warm_up(self, run: Run) -> None:
        self._poison()
        run()

    def record(self, run: Run, tensors: Sequence[Tensor]) -> Replay:
        self.recorded += 1
        addresses = [tensor.data_ptr() for tensor in tensors]
        first: list[tuple[str, int]] = []

        def replay(run: Run) -> None:
            assert addresses == [tensor.data_ptr() for tensor in tensors]
            self._poison()
            with _Watched() as watched:
                run()
            first[:] = first or watched.outside
            assert watched.outside == first, "a graph would have read and written elsewhere"
            self._pool = list(watched.made.values())
            self.replayed += 1

        return replay

    def _poison(self) -> None:
        for tensor in self._pool:
            tensor.untyped_storage().fill_(0xFF)  # NaN, in floats; -1 in integers
        self._pool = []


class Refusing(StandIn):
    """Can't record, as a decoder that reads from the device can't be."""

    def record(self, run: Run, tensors: Sequence[Tensor]) -> Replay:
        raise RuntimeError("operation not permitted when stream is capturing\nmore lines")


def poisoned(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step before which every slot that is not committed is full of NaN."""

    def wrapped(graphs: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        for layer in target.cache.slot_layers:
            for store in layer.whole:
                for row, length in enumerate(target.lengths):
                    store[row, :, length:] = torch.nan
                store[len(target.lengths) :] = torch.nan
        return step(graphs, target, *args, **kwargs)

    return wrapped


class MockCuda:
    """Streams, graphs and the allocator of `torch.cuda` as far as a capture meets them.

    A capture in which something raised is invalid: `capture_end` raises before it ends the pool's
    allocation, as in torch 2.11 and 2.15, and `empty_cache` asserts while some pool's is open. A
    graph whose capture has ended gives its pool back when it is gone. Torch's default generator is
    capturing from the beginning of a capture to an end that does not raise, as in torch 2.11.

    Attributes:
        open: pools that allocations go to.
        uses: captures that have taken a pool, and graphs that were captured in it.
        is_drawing: the default generator takes itself to be within a capture.
        workspace: where that of cuBLAS lies, a pool or `outside`; `None` where there is none.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails_at: str = "") -> None:
        self.open: set[tuple[int, int]] = set()
        self.uses: Counter[tuple[int, int]] = Counter()
        self.is_invalid = self.is_drawing = False
        self.workspace: Any = None
        self._fails_at = fails_at
        mock = self

        class Stream:
            device = torch.device("cuda", 0)

            def __init__(self, device: Any = None, priority: int = 0) -> None:
                self.priority = priority

            def wait_stream(self, other: Any) -> None: ...

        class Graph:
            def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
                self.pool, self.has_ended, mock.is_invalid = pool, False, False
                mock.open.add(pool)
                mock.uses[pool] += 1
                mock.is_drawing = True
                mock.fail_at("begin")

            def capture_end(self) -> None:
                mock.fail(mock.is_invalid)
                mock.end(0, self.pool)
                self.has_ended, mock.is_drawing = True, False
                mock.fail_at("instantiate")

            def __del__(self) -> None:
                if self.has_ended:
                    mock.release(0, self.pool)

        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        monkeypatch.setattr(torch.cuda, "current_stream", Stream)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
        monkeypatch.setattr(torch.cuda, "empty_cache", self.empty_cache)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_releasePool", self.release, raising=False)
        clear = "_cuda_clearCublasWorkspaces"
        monkeypatch.setattr(torch._C, clear, lambda: vars(self).update(workspace=None), False)

    def multiply(self) -> Any:
        """A product by cuBLAS; returns where its workspace lies, which is allocated once."""
        self.workspace = self.workspace or next(iter(self.open), "outside")
        return self.workspace

    def fail_at(self, where: str) -> None:
        """Raise there, once."""
        if where == self._fails_at:
            self._fails_at = ""
            self.fail()

    def fail(self, fails: bool = True) -> None:
        """Raise what a capture raises, whatever it is that it met."""
        if fails:
            self.is_invalid = True
            raise RuntimeError("operation not permitted when stream is capturing\nmore lines")

    def end(self, device: int, pool: tuple[int, int]) -> None:
        """As `_cuda_endAllocateToPool`, which knows the pools that are open."""
        assert device == 0
        if pool not in self.open:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.open.remove(pool)

    def release(self, device: int, pool: tuple[int, int]) -> None:
        """As `_cuda_releasePool`, which asserts that somebody has the pool."""
        assert device == 0
        self.uses[pool] -= 1
        assert self.uses[pool] >= 0, "a pool was released twice"

    def empty_cache(self) -> None:
        assert not self.open, "captures_underway.empty() INTERNAL ASSERT FAILED"
