"""Chooses between drafting in parallel with the target and in turns, by measured step times."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ..engine.runner import ModelRunner
from ..methods.experience import Acceptance, chain_tokens
from ..methods.parallel.schedule import best_policy
from ..methods.parallel.worker import place, start_process, start_thread
from ..models import adapt

STEPS, WORDS, BLOCK = 3, 8, 5
"""Timed forwards of each kind; words of the made-up prompt; tokens of a verification."""

WARM, PARALLEL_STEPS = 4, 9
"""First forwards of a worker that do not count: a forked one copies every page that it touches; and
the target's timed forwards beside it."""

GRACE = 2.0
"""Seconds that a worker gets for its first forward, and to stop."""


@dataclass(frozen=True)
class StepTimes:
    """The seconds that a forward takes.

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
    target_parallel: float
    draft_parallel: float
    seconds: float = 0.0

    def __str__(self) -> str:
        alone, both = (
            f"{1e3 * target:.1f} and {1e3 * draft:.1f} ms"
            for target, draft in (
                (self.target, self.draft),
                (self.target_parallel, self.draft_parallel),
            )
        )
        return (
            f"target and draft step in {alone} alone, {both} at once (measured in "
            f"{self.seconds:.2f} s)"
        )


@torch.inference_mode()
def measure(target: Any, draft: Any, tokens: int, share: float, placement: str) -> StepTimes:
    """Time a few steps behind a prompt of `tokens` tokens, whose cache is random, not computed.

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
    if placement == "spawn" and small.adapter.device != big.adapter.device:  # nothing is shared
        return StepTimes(*alone, alone[0], alone[2], time.perf_counter() - begin)
    with busy(small, placement) as tally:
        seconds = big.seconds(1, PARALLEL_STEPS)
    forwards, nanoseconds = tally.tolist()[1:]
    draft_parallel = nanoseconds / max(forwards, 1) / 1e9 or alone[2]
    return StepTimes(*alone, seconds, draft_parallel, time.perf_counter() - begin)


class Steps:
    """A model with a prompt of a given length in its cache, for steps that are not committed."""

    def __init__(self, model: Any, tokens: int) -> None:
        self.adapter = adapt(model)
        size = min(tokens, (self.adapter.max_positions or tokens + BLOCK) - BLOCK)
        ids = [token for token in range(4 * WORDS) if token not in self.adapter.visual_ids][:WORDS]
        self.words = torch.tensor([ids], device=self.adapter.device) % self.adapter.vocab_size
        self.runner = ModelRunner(self.adapter, size + BLOCK)
        prompt = self.adapter.embed_prompt({"input_ids": self.words})
        self.runner.prefill(prompt)
        self.runner.resume([max(size, WORDS)], prompt.next_position)

    def step(self, block: int = 1) -> float:
        """Returns seconds of one forward over `block` tokens."""
        start = time.perf_counter()
        logits = self.runner.forward_chain(self.words[:, :block]).logits
        logits.argmax(-1).tolist()  # waits for the device
        return time.perf_counter() - start

    def seconds(self, block: int, steps: int = STEPS) -> float:
        """Returns median over a few forwards behind one that does not count."""
        self.step(block)
        return median(self.step(block) for _ in range(steps))


def quickest(*several: Steps) -> list[float]:
    """Returns seconds of the fastest one-token step of each, in turns: the minimum ignores
    stalls.
    """
    rounds = [[steps.step() for steps in several] for _ in range(1 + STEPS)]
    return [min(times) for times in zip(*rounds, strict=True)]


@contextmanager
def busy(steps: Steps, placement: str) -> Iterator[Tensor]:
    """The draft runs steps continuously where its worker would run.

    Yields:
        `[stop, forwards, nanoseconds]`, in shared memory.
    """
    tally = torch.frombuffer(mmap.mmap(-1, 24), dtype=torch.long)  # anonymous, so zeros
    device = steps.adapter.device
    forks = device.type == "cpu" and place(placement, device) == "process"
    body = partial(_go_on, steps, tally)
    task = start_process("fork", body) if forks else start_thread(body, device)
    deadline = time.perf_counter() + GRACE
    try:
        while not int(tally[1]) and task.is_alive and time.perf_counter() < deadline:
            time.sleep(1e-4)
        yield tally
    finally:
        tally[0] = 1
        task.runner.join(GRACE)
        task.end()


@torch.inference_mode()
def _go_on(steps: Steps, tally: Tensor, _: object) -> None:
    """Body of the worker."""
    for _ in range(WARM):
        steps.step()
    while not int(tally[0]):
        spent = steps.step()
        tally[2] += int(spent * 1e9)
        tally[1] += 1


MARGIN = 1.05
"""Predicted gain that `parallel` needs: its rounds cost more than their forwards."""

PRUNING_PAYS = 1.4
"""The draft's step with every visual token over that with few, from which on pruning is tried: what
it loses in acceptance it has to win in time. The paper's pairs have 1.6 to 1.7 (table 3)."""

LARGEST = 16
"""Most draft tokens."""

Seen = Callable[[float], Acceptance]
"""Acceptance of drafts that do without a share of the visual tokens."""


@dataclass(frozen=True)
class Way:
    """Says how to draft, and what to expect of it.

    Attributes:
        is_beside: the draft works beside the target, else by turns.
        prune: share of the visual tokens that it does without.
        acceptance: chance that a draft token is accepted.
        is_seen: that was seen in earlier files; else it is assumed.
        speed: of decoding, over plain decoding's.
    """

    is_parallel: bool
    prune: float
    acceptance: float
    is_seen: bool
    speed: float

    def __str__(self) -> str:
        known = "seen in earlier files" if self.is_seen else "assumed"
        return f"{self.speed:.2f}x plain at an acceptance of {self.acceptance:.2f} ({known})"


def choose(pace: StepTimes, seen: Seen, share: float, is_open: bool, can_prune: bool) -> list[Way]:
    """Returns all candidate ways to draft, the best first.

    Args:
        pace: of these models here.
        seen: acceptance so far.
        share: of the visual tokens that a pruned draft does without.
        is_open: that share may be 0 as well; else it was asked for.
        can_prune: ranking, which needs a prefill that is whole, is possible.
    """
    whole, rate = seen(0.0), expected(seen, share)
    turns = Way(False, 0.0, rate, whole.is_known, by_turns(pace, rate))
    ways = []
    if is_open or not share:
        ways.append(Way(True, 0.0, rate, whole.is_known, parallel_speedup(pace, rate)))
    pruned = seen(share)
    tried = pruned.is_known or pace.draft >= PRUNING_PAYS * pace.few
    if share and (not is_open or (can_prune and tried)):
        rate = pruned.rate if pruned.is_known else rate
        ways.append(
            Way(True, share, rate, pruned.is_known, parallel_speedup(pace, rate, is_pruned=True))
        )
    ways.sort(key=lambda way: -way.speed)
    return [*ways, turns] if ways[0].speed >= MARGIN * turns.speed else [turns, *ways]


def expected(seen: Seen, share: float) -> float:
    """Returns acceptance to expect of a draft that sees everything: no less than a pruned one's."""
    whole, pruned = seen(0.0), seen(share)
    if whole.is_known or not pruned.is_known:
        return whole.rate
    return max(whole.rate, pruned.rate)


def by_turns(pace: StepTimes, acceptance: float) -> float:
    """Returns speed of drafting by turns over plain decoding's, which it falls back to."""
    forwards = _forwards(pace.target, pace.block)
    tokens = chain_tokens([acceptance] * LARGEST)
    return max(
        tokens[size] * pace.target / (size * pace.draft + seconds)
        for size, seconds in enumerate(forwards)
    )


def parallel_speedup(pace: StepTimes, acceptance: float, is_pruned: bool = False) -> float:
    """Returns the speed of drafting beside the target over plain decoding's."""
    slower = max(pace.target_parallel / pace.target, 1.0)
    draft = max(pace.draft_parallel, pace.draft)
    if is_pruned:
        draft *= min(pace.few / pace.draft, 1.0)
    forwards = _forwards(slower * pace.target, slower * pace.block)
    return best_policy(acceptance, draft, forwards)[1] * pace.target


def _forwards(target: float, block: float) -> list[float]:
    """Returns seconds of the target's forwards over `0 .. LARGEST` draft tokens, on a line."""
    each = max(block - target, 0.0) / (BLOCK - 1)
    return [target + size * each for size in range(1 + LARGEST)]
