"""The order of a draft's CUDA stream and the main one, told by the events that are recorded."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import sooner
import tiny
from sooner.decoding.sampling import Processing
from sooner.methods.parallel import method as method_module
from sooner.methods.parallel.server import DraftServer
from sooner.methods.parallel.side_stream import SideStream
from sooner.tasks import choice as pace

CUDA = torch.device("cuda", 1)
FAMILY = "llava_onevision"


class FakeCuda:
    """Streams and events that write down what is asked of them, and on which thread."""

    def __init__(self) -> None:
        self.log: list[tuple[str, bool]] = []

    def note(self, what: str) -> None:
        self.log.append((what, threading.current_thread() is threading.main_thread()))

    def _event(self) -> Any:
        note = self.note

        class Event:
            def record(self, stream: str) -> None:
                note(f"record on {stream}")

        return Event()

    def _stream(self, device: torch.device) -> Any:
        note = self.note
        note(f"stream of {device}")

        class Stream:
            def wait_event(self, event: Any) -> None:
                note(f"wait for {type(event).__name__}")

        return Stream()

    def _current_stream(self, device: torch.device) -> str:
        return f"main stream of {device}"

    @contextmanager
    def _entered(self, stream: Any) -> Any:
        self.note("enter")
        yield
        self.note("leave")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(torch.cuda, "Event", fake._event)
    monkeypatch.setattr(torch.cuda, "Stream", fake._stream)
    monkeypatch.setattr(torch.cuda, "current_stream", fake._current_stream)
    monkeypatch.setattr(torch.cuda, "stream", fake._entered)
    return fake


ORDER = [
    "copies", "record on main stream of cuda:1", "stream of cuda:1", "wait for Event", "enter",
]  # fmt: skip


class OnCuda:
    """An adapter that says it is on a GPU."""

    def __init__(self, model: Any) -> None:
        self._adapter = real_adapt(model)
        self.device = CUDA

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


real_adapt = method_module.adapt


def test_the_workers_stream_waits_for_the_copies_of_its_inputs(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From `ParallelVLM` on: copies, then the event on the main stream, then the first work."""

    def copied(inputs: Any, device: torch.device) -> dict[str, Any]:
        cuda.note("copies")
        assert device == CUDA
        return dict(inputs)

    def serve(self: DraftServer, wakeup: Any) -> None:
        cuda.note("work")

    monkeypatch.setattr(method_module, "adapt", OnCuda)
    monkeypatch.setattr(method_module, "to_device", copied)
    monkeypatch.setattr(DraftServer, "serve", serve)
    monkeypatch.setattr(Processing, "copy_to", lambda self, device: self)
    method = sooner.ParallelVLM(tiny.noisy(FAMILY), prune=0)
    sooner.generate(
        tiny.model(FAMILY), tiny.inputs(FAMILY, "video"), method,
        max_new_tokens=3, eos_token_id=None, do_sample=False,
    )  # fmt: skip
    assert [what for what, _ in cuda.log] == [*ORDER, "work", "leave"]
    threads = [is_main for _, is_main in cuda.log]
    assert threads == [True, True, False, False, False, False, False]


def test_the_inputs_memory_is_held_for_the_stream_that_reads_it(cuda: FakeCuda) -> None:
    class OnGpu(torch.Tensor):
        held: list[Any] = []  # noqa: RUF012

        @property
        def device(self) -> torch.device:  # type: ignore[override]
            return CUDA

        def record_stream(self, stream: Any) -> None:
            self.held.append(stream)

    pixels = torch.zeros(2).as_subclass(OnGpu)
    side = SideStream(CUDA, [pixels, torch.zeros(2), "a word"])
    with side():
        pass
    assert len(OnGpu.held) == 1


def test_there_are_no_streams_on_a_cpu(cuda: FakeCuda) -> None:
    with SideStream(torch.device("cpu"), [torch.zeros(2)])():
        pass
    assert cuda.log == []


def test_a_draft_that_is_timed_beside_the_target_waits_likewise(cuda: FakeCuda) -> None:
    """`sooner.tasks.choice`: its prompt is prefilled on the main stream."""

    class Steps:
        adapter = OnCuda(tiny.noisy(FAMILY))

        def step(self) -> float:
            cuda.note("work")
            return 0.001

    with pace.busy(Steps(), "thread"):  # type: ignore[arg-type]
        pass
    assert [what for what, _ in cuda.log][:5] == [*ORDER[1:], "work"]
