"""What recorders of CUDA graphs share, with the device's calls replaced."""

from __future__ import annotations

import threading

import pytest
import torch

from sooner.graphs import recorder


def test_recorders_of_a_thread_share_one_stream_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.device] = []

    def stream(device: torch.device) -> object:
        made.append(device)
        return object()

    monkeypatch.setattr(torch.cuda, "Stream", stream)
    recorder._stream.cache_clear()
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    recorders = [recorder.CudaGraphs(device) for device in (first, first, second, first)]
    assert made == [first, second]
    assert recorders[0].stream is recorders[1].stream is recorders[3].stream
    beside: list[recorder.CudaGraphs] = []
    thread = threading.Thread(target=lambda: beside.append(recorder.CudaGraphs(first)))
    thread.start()
    thread.join()
    assert beside[0].stream is not recorders[0].stream, "what it records is its own"
    recorder._stream.cache_clear()
