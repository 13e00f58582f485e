"""A CUDA stream beside the caller's: what the caller queued before is done before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class SideStream:
    """Made by the thread that prepared the inputs, entered by the thread that works on them.

    Copies to a device are queued on the stream of the thread that asks for them. A second stream
    knows nothing of that queue and would read memory that is not written yet, so it waits for an
    event recorded behind the copies. The allocator is told that the inputs are in use there, or
    it would hand their memory out again as soon as the first stream is done with them.

    Args:
        device: on anything but CUDA there are no streams, and this does nothing.
        inputs: tensors that were queued; those elsewhere are left alone.
    """

    def __init__(self, device: torch.device, inputs: Iterable[object] = ()) -> None:
        self.device = device
        self.inputs = [
            tensor
            for tensor in inputs
            if isinstance(tensor, Tensor) and tensor.device.type == "cuda"
        ]
        self.ready: torch.cuda.Event | None = None
        if device.type == "cuda":
            self.ready = torch.cuda.Event()
            self.ready.record(torch.cuda.current_stream(device))

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Queue what follows on a stream of its own, behind what was queued before."""
        if self.ready is None:
            yield
            return
        stream = torch.cuda.Stream(self.device)
        stream.wait_event(self.ready)
        for tensor in self.inputs:
            tensor.record_stream(stream)
        with torch.cuda.stream(stream):
            yield
