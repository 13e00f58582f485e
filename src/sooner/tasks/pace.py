"""How long steps of target and draft take on this machine, alone and while the other one works."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ..decoding.runner import ModelRunner
from ..methods.parallel.arena import Arena, room
from ..methods.parallel.side_stream import SideStream
from ..methods.parallel.worker import ProcessWorker, place
from ..methods.threads import DRAFT_THREADS
from ..models import adapt

STEPS, WORDS, BLOCK = 3, 8, 5
"""Timed forwards of each kind; words of the made-up prompt; tokens of a verification."""
WARM, BESIDE = 4, 9
"""First forwards of a worker that do not count: a forked one copies every page that it touches; and
the target's timed forwards beside it."""


GRACE = 2.0
"""Seconds that a worker gets for its first forward, and to stop."""
TALLY = (3,), torch.long


@dataclass(frozen=True)
class Pace:
    """Seconds of a forward.

    Attributes:
        target, block: the target's over one token and over `BLOCK` tokens.
        draft: the draft's over one token; `few` behind a pruned prompt.
        target_beside, draft_beside: the same while the other model works.
        seconds: what measuring took.
    """

    target: float
    block: float
    draft: float
    few: float
    target_beside: float
    draft_beside: float
    seconds: float = 0.0

    def __str__(self) -> str:
        alone, both = (
            f"{1e3 * target:.1f} and {1e3 * draft:.1f} ms"
            for target, draft in (
                (self.target, self.draft),
                (self.target_beside, self.draft_beside),
            )
        )
        return (
            f"target and draft step in {alone} alone, {both} at once (measured in "
            f"{self.seconds:.2f} s)"
        )


@torch.inference_mode()
def measure(target: Any, draft: Any, tokens: int, share: float, placement: str) -> Pace:
    """Time a few steps behind a prompt of `tokens` tokens, whose cache is made up, not computed.

    Args:
        target, draft: HF models.
        share: of the prompt that a pruned draft does without.
        placement: of the draft's worker.
    """
    begin = time.perf_counter()
    big, small = Steps(target, tokens), Steps(draft, tokens)
    few = Steps(draft, max(WORDS, int(tokens * (1 - share))))
    whole, pruned = quickest(small, few)
    alone = big.seconds(1), big.seconds(BLOCK), whole, pruned
    with busy(small, placement) as tally:
        beside = big.seconds(1, BESIDE)
    forwards, nanoseconds = tally.tolist()[1:]
    draft_beside = nanoseconds / max(forwards, 1) / 1e9 or alone[2]
    return Pace(*alone, beside, draft_beside, time.perf_counter() - begin)


class Steps:
    """A model behind a prompt of a given length, ready for steps that leave no trace."""

    def __init__(self, model: Any, tokens: int) -> None:
        self.adapter = adapt(model)
        size = min(tokens, (self.adapter.max_positions or tokens + BLOCK) - BLOCK)
        ids = [one for one in range(4 * WORDS) if one not in self.adapter.visual_ids][:WORDS]
        self.words = torch.tensor([ids], device=self.adapter.device) % self.adapter.vocab_size
        self.runner = ModelRunner(self.adapter, size + BLOCK)
        prompt = self.adapter.embed_prompt({"input_ids": self.words})
        self.runner.prefill(prompt)
        self.runner.resume([max(size, WORDS)], prompt.next_position)

    def step(self, block: int = 1) -> float:
        """Seconds of one forward over `block` tokens."""
        start = time.perf_counter()
        logits = self.runner.forward_chain(self.words[:, :block]).logits
        logits.argmax(-1).tolist()  # waits for the device
        return time.perf_counter() - start

    def seconds(self, block: int, steps: int = STEPS) -> float:
        """Median over a few forwards behind one that does not count."""
        self.step(block)
        return median(self.step(block) for _ in range(steps))


def quickest(*several: Steps) -> list[float]:
    """Seconds of the fastest one-token step of each, in turns: a stall must not decide."""
    rounds = [[one.step() for one in several] for _ in range(1 + STEPS)]
    return [min(times) for times in zip(*rounds, strict=True)]


@contextmanager
def busy(steps: Steps, placement: str) -> Iterator[Tensor]:
    """The draft steps on and on where its worker would run.

    Yields:
        `[stop, forwards, nanoseconds]`, in shared memory.
    """
    tally = Arena(room(*TALLY)).take(*TALLY)  # anonymous, so zeros
    forks = place(placement, steps.adapter.device) is ProcessWorker
    stream = SideStream(steps.adapter.device)
    arguments = (steps, tally, stream, os.getpid() if forks else None)
    kind: Any = multiprocessing.get_context("fork").Process if forks else threading.Thread
    worker = kind(target=_go_on, args=arguments, daemon=True)
    worker.start()
    deadline = time.perf_counter() + GRACE
    try:
        while not int(tally[1]) and worker.is_alive() and time.perf_counter() < deadline:
            time.sleep(1e-4)
        yield tally
    finally:
        tally[0] = 1
        worker.join(GRACE)
        if forks and worker.is_alive():
            worker.kill()
            worker.join()


def _go_on(steps: Steps, tally: Tensor, stream: SideStream, parent: int | None) -> None:
    """Body of the worker; a forked one ends with its parent and runs none of its exit handlers."""
    if parent is not None:
        torch.set_num_threads(DRAFT_THREADS)
    with torch.inference_mode(), stream():
        for _ in range(WARM):
            steps.step()
        while not int(tally[0]) and (parent is None or os.getppid() == parent):
            spent = steps.step()
            tally[2] += int(spent * 1e9)
            tally[1] += 1
    if parent is not None:
        os._exit(0)
