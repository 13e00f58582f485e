"""What is launched, recorded to be launched again at once (on GPUs as CUDA graphs), or compiled."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor

from ..attention.context import attending_to_blocks
from ..runner import ModelRunner

MAX_CELLS = 1024
"""Rows times entries of the largest bucket."""

Run = Callable[[], None]
Replay = Callable[[Run], None]
"""Launches what was recorded in the place of a function that would launch the same now."""


class GraphRecorder(Protocol):
    """Replays what a function launches, so that it can be launched again at once."""

    nbytes: int

    def warm_up(self, run: Run) -> None:
        """Run it where it would be recorded: what is made once must be there before."""

    def record(self, run: Run, tensors: Sequence[Tensor]) -> Replay:
        """What `run` would launch, as a function that launches it; here it is not run.

        Args:
            tensors: what it reads and writes beside tensors of its own; at these addresses.
        """


class CudaGraphs:
    """CUDA graphs in one pool: none of them runs beside another, and none leaves a result there.

    Attributes:
        nbytes: memory that the pool has taken.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.nbytes = device, 0
        self._graphs: WeakSet[Any] = WeakSet()
        self._pool: Any = None

    @property
    def stream(self) -> torch.cuda.Stream:
        """Returns that of the calling thread, which need not be the one that made the recorder."""
        return _stream(self.device, threading.get_ident())

    def warm_up(self, run: Run) -> None:
        stream, current = self.stream, torch.cuda.current_stream(self.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            run()
        current.wait_stream(stream)

    def record(self, run: Run, tensors: Sequence[Tensor]) -> Replay:
        if not len(self._graphs):  # a pool whose graphs are all gone can't be used again
            self._pool, self.nbytes = torch.cuda.graph_pool_handle(), 0
        before = torch.cuda.memory_reserved(self.device)
        graph = capture(run, self.stream, self._pool)
        self.nbytes += torch.cuda.memory_reserved(self.device) - before
        self._graphs.add(graph)

        def replay(run: Run) -> None:
            graph.replay()

        return replay


@cache
def _stream(device: torch.device, thread: int) -> torch.cuda.Stream:
    """The stream on which a thread records, which all of its recorders share.

    Of high priority: torch hands out 32 streams of each in turn, so that one of the usual priority
    may be a draft worker's, too, whose kernels a capture would take for its own.
    """
    return torch.cuda.Stream(device, priority=-1)


def capture(run: Run, stream: Any, pool: Any) -> Any:
    """A CUDA graph of what `run` launches, of which nothing is run.

    `torch.cuda.graph` would collect garbage and wait for the device each time.

    Args:
        stream: to capture on; it waits for the current one, and that for it.
        pool: for what `run` allocates, of `torch.cuda.graph_pool_handle`.

    Raises:
        Exception: whatever `run` raised, or why the capture is not valid.
    """
    with _without_collector():  # what it frees might be another graph's
        try:
            return _capture(run, stream, pool)
        except BaseException:
            # Torch 2.11 leaves its default generator capturing, so that every later draw would
            # raise; a capture that succeeds ends that. It is empty, which torch warns of.
            with suppress(Exception), warnings.catch_warnings(action="ignore"):
                _capture(lambda: None, stream, torch.cuda.graph_pool_handle())
            raise


def _capture(run: Run, stream: Any, pool: Any) -> Any:
    graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    # Whoever clears cuBLAS's workspaces frees those that graphs write to, unless they lie in the
    # pool; and there nothing but graphs may write. So there is none before, and none stays behind.
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.stream(stream):
        try:
            # Other threads, such as a parallel draft's, may go on allocating meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            run()
        except BaseException:
            with suppress(Exception):  # says again that the capture has failed
                _end_capture(graph, stream.device, pool)
            raise
        else:
            _end_capture(graph, stream.device, pool)
        finally:
            torch._C._cuda_clearCublasWorkspaces()
    current.wait_stream(stream)
    return graph


def _end_capture(graph: Any, device: torch.device, pool: Any) -> None:
    """End a capture, and where it has failed what it began in the allocator, too.

    `capture_end` raises before it does that, and the graph's destructor would leave it; then the
    next `empty_cache`, or a retry when memory ran out, would meet an assertion of torch's.
    """
    try:
        graph.capture_end()
    except BaseException:
        with suppress(RuntimeError):  # it came as far as that, so the destructor does the rest
            torch._C._cuda_endAllocateToPool(device.index, pool)
            torch._C._cuda_releasePool(device.index, pool)
        raise


class Replays:
    """What was recorded of one runner, by key: run once as it is and recorded, then replayed.

    Attributes:
        buffers: what records read and write beside their inputs.
        seconds: that recording took.
        unsettled: runs that were the first of their key.
        recorded: keys that were recorded.
        failure: why nothing is recorded any more, if so.
    """

    def __init__(self, recorder: GraphRecorder | None) -> None:
        self.recorder = recorder
        self.buffers: list[Tensor] = []
        self.seconds, self.unsettled, self.recorded = 0.0, 0, 0
        self.failure: str | None = None
        self._replays: dict[Hashable, Replay] = {}

    def keeps(self, tensors: list[Tensor]) -> bool:
        """Whether the same tensors are held as before; if some row needed more room, others are,
        and all records are dropped."""
        if [*map(id, tensors)] == [*map(id, self.buffers)]:
            return True
        self.buffers = tensors
        self._replays.clear()
        return False

    def run(self, key: Hashable, run: Run, inputs: Sequence[Tensor]) -> None:
        """Launch a part of a step: its record, or what it is made of, which is recorded then."""
        if self.recorder is None:
            run()
        elif (replay := self._replays.get(key)) is not None:
            replay(run)
        else:
            self.unsettled += 1
            self.recorder.warm_up(run)
            start = time.perf_counter()
            try:
                self._replays[key] = self.recorder.record(run, [*self.buffers, *inputs])
            except Exception as error:  # it has run all the same, and will without
                reason = str(error).strip() or type(error).__name__
                self.recorder, self.failure = None, reason.splitlines()[0]
                self._replays.clear()
            else:
                self.recorded += 1
            self.seconds += time.perf_counter() - start


@contextmanager
def _without_collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def power_of_two(number: int) -> int:
    """The smallest that is not below."""
    return 1 << (number - 1).bit_length()


def compiled_for(
    function: Any, options: Mapping[str, Any], *shape: int | bool
) -> Callable[..., Any]:
    """Returns a function compiled for one shape, capacity of the cache included.

    It has code of its own: dynamo keeps what it compiled by code, 8 graphs at most, and runs what
    comes behind them as it is without a word.
    """
    code = _code(function.__code__, shape)
    made = FunctionType(code, function.__globals__)
    return torch.compile(made, dynamic=False, **options)


@cache
def _code(code: CodeType, shape: tuple[int | bool, ...]) -> CodeType:
    return code.replace(co_name="_".join([code.co_name, *(str(int(size)) for size in shape)]))


@contextmanager
def entering(runner: ModelRunner, is_compiled: bool) -> Iterator[None]:
    """What a compiled forward can't enter by itself."""
    if not is_compiled:
        yield
        return
    attending = attending_to_blocks(runner.adapter.text_config)
    with runner.rope_by_token(), attending, torch.inference_mode(False), torch.no_grad():
        yield
