"""Start and end times of both models' forwards, recorded by hooks.

A forked worker inherits the hooks; its clock is the parent's (Linux has one monotonic clock), and
what it notes goes to shared memory. So one run tells both sides on one time line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sooner.models.hooks import ForwardHooks

KINDS = ("vision", "prefill", "step", "rank", "wait")
ROOM = 8192
"""Events of one side; a caption of 512 tokens has some thousand."""


@dataclass(frozen=True)
class TraceEvent:
    """Something that one side did.

    Attributes:
        kind: of `KINDS`.
        start, end: seconds on the clock of `time.perf_counter`.
        entries: tokens in the forward; 0 where that means nothing.
        place: index of the generated token behind the last one that was read; -1 unknown.
        token: the token that came out there by greedy choice; -1 unknown.
    """

    kind: str
    start: float
    end: float
    entries: int = 0
    place: int = -1
    token: int = -1

    @property
    def seconds(self) -> float:
        return self.end - self.start


class EventLog:
    """Events of one side, in memory that a forked process shares."""

    def __init__(self, room: int = ROOM) -> None:
        self.table = torch.zeros(room, 6, dtype=torch.float64).share_memory_()
        self.count = torch.zeros(1, dtype=torch.long).share_memory_()

    def add(self, event: TraceEvent) -> None:
        """Keep an event; what has no room is left out."""
        number = int(self.count[0])
        if number < len(self.table):
            line = (KINDS.index(event.kind), event.start, event.end)
            more = (event.entries, event.place, event.token)
            self.table[number] = torch.tensor([*line, *more], dtype=torch.float64)
            self.count[0] = number + 1

    def events(self) -> list[TraceEvent]:
        """What was kept, by the time of its start."""
        lines = self.table[: int(self.count[0])].tolist()
        found = [
            TraceEvent(KINDS[int(kind)], start, end, int(entries), int(place), int(token))
            for kind, start, end, entries, place, token in lines
        ]
        return sorted(found, key=lambda event: event.start)


class ForwardTracer(ForwardHooks):
    """Hooks on one model, from the prompt's pixels to its head.

    Vision is what runs before the decoder is first reached inside the model's own forward; a
    forward is from the call of the decoder to the return of the head.

    Args:
        model: an HF model with a language-model head.
        log: where events go.
        depth: layers behind which visual tokens are ranked; the time between that layer and the
            next one is then noted as `rank`, once.
    """

    every_thread = True

    def __init__(self, model: Any, log: EventLog, depth: int | None = None) -> None:
        super().__init__()
        self.model, self.log, self.depth = model, log, depth
        self.body_start: float | None = None
        self.start: float | None = None
        self.entries = 0
        self.next_position = 0  # of the first generated token
        self.position = -1  # of the last token that was read
        self.rank_start: float | None = None

    def install(self) -> None:
        decoder, depth = self.model.get_decoder(), self.depth
        self.before(decoder, self._at_door)
        self.after(self.model.get_output_embeddings(), self._at_exit)
        if self.model.model is not decoder:
            self.before(self.model.model, self._at_body)
        if depth is not None and depth < len(decoder.layers):
            self.after(decoder.layers[depth - 1], self._ranking)
            self.before(decoder.layers[depth], self._ranked)

    def _at_body(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        self.body_start = time.perf_counter()

    def _at_door(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        embeds = kwargs["inputs_embeds"]
        if self.body_start is not None:  # the prompt is being embedded; the decoder won't run
            _settle(embeds)
            self.log.add(TraceEvent("vision", self.body_start, time.perf_counter()))
            self.body_start = None
            return
        if self.start is None:
            self.start, self.entries = time.perf_counter(), 0
        self.entries += embeds.shape[1]
        self.position = int(kwargs["position_ids"].max())

    def _at_exit(
        self, module: nn.Module, args: tuple, kwargs: dict[str, Any], logits: Tensor
    ) -> None:
        if self.start is None:
            return
        token = int(logits[0, -1].argmax())  # waits for the device
        is_prefill = self.next_position == 0
        if is_prefill:
            self.next_position = self.position + 1
        place = self.position + 1 - self.next_position
        kind = "prefill" if is_prefill else "step"
        self.log.add(TraceEvent(kind, self.start, time.perf_counter(), self.entries, place, token))
        self.start = None

    def _ranking(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        if self.next_position == 0 and self.start is not None:
            self.rank_start = time.perf_counter()

    def _ranked(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if self.rank_start is not None:
            self.log.add(TraceEvent("rank", self.rank_start, time.perf_counter()))
            self.rank_start = None


def _settle(tensor: Tensor) -> None:
    """Wait for what this thread gave the device, and for nothing else."""
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()


@contextmanager
def watched(target: Any, draft: Any, depth: int) -> Iterator[tuple[EventLog, EventLog]]:
    """Watch both models; the hooks are gone afterwards.

    Args:
        target, draft: two different models.
        depth: target layers that run before visual tokens are ranked.
    """
    logs = EventLog(), EventLog()
    with ForwardTracer(target, logs[0], depth), ForwardTracer(draft, logs[1]):
        yield logs


def note_waits(worker: Any, log: EventLog) -> None:
    """Note when the target waits for the worker's tokens; `worker` is of one run only."""
    wait = worker.wait

    def timed(*args: Any) -> None:
        start = time.perf_counter()
        wait(*args)
        log.add(TraceEvent("wait", start, time.perf_counter()))

    worker.wait = timed
