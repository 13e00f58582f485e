"""Greedy decoding of a page or its regions, with a stop where the text repeats itself."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from transformers import StoppingCriteriaList

from ...engine.rows import RowWatch
from ...engine.stats.run import Stats
from ...generation import generate
from ...methods import HSD, Autoregressive, Method
from ..prefill import Prefill
from .result import BUDGET, LENGTH, REPETITION, TIME, StageStats

T = TypeVar("T")

Clock: TypeAlias = Callable[[], float]
"""Seconds that were spent on a page so far."""

LONGEST = 256
"""Longest period that is looked for, in tokens."""

PERIODS = 6
"""Repetitions that a period needs, however long it is; rows of a table may well be alike."""


class RunawayWatch:
    """Detects a text that repeats itself, token by token.

    A text is a runaway at the first token behind which the last `limit` tokens, and no fewer than
    `PERIODS` periods, each equal the one a period before. That depends on the text alone and not
    on how many tokens came at once, so drafted and plain decoding stop at the same token.

    Args:
        limit: tokens; 0 never stops.

    Attributes:
        sound: tokens up to the end of the first period (what is kept), once `add` was true.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = self.sound = 0
        self._periods = np.arange(1, LONGEST + 1)
        self._last = np.full(LONGEST, -1, dtype=np.int64)  # the token `p` ago at `p - 1`
        self._runs = np.zeros(LONGEST, dtype=np.int64)  # tokens that equal the one `p` before

    def add(self, token: int) -> bool:
        """Returns whether the text is a runaway now."""
        if not self.limit:
            return False
        self._runs = (self._runs + 1) * (self._last == token)
        self._last[1:] = self._last[:-1]
        self._last[0] = token
        self.count += 1
        over = np.flatnonzero(
            (self._runs >= self.limit) & (self._runs >= (PERIODS - 1) * self._periods)
        )
        if not len(over):
            return False
        self.sound = self.count - int(self._runs[over[0]])
        return True


@dataclass
class DecodedRow:
    """The tokens that were decoded for one row.

    Attributes:
        tokens: to its end, or to where it was stopped; without the id that ends it.
        drafted: which of them a draft proposed.
        sound: tokens in front of a repetition.
        truncated: why it did not come to an end.
    """

    tokens: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    sound: int = 0
    truncated: str | None = None


@dataclass(frozen=True)
class DecodeRequest:
    """Rows of a page to be decoded greedily.

    Attributes:
        inputs: what the processor returned, `input_ids [rows, width]`.
        limits: most new tokens of each row.
        repetition: of `RunawayWatch`, of each row; 0 never stops.
        drafts: of each row, as `HSD` takes them; `None` decodes plainly.
        verification: options of `HSD`.
        verify_every: of `sooner.generate`, which decodes a request that is alone.
        prefill: a sparse one; the model's own by default.
        seconds: of decoding, after which rows are stopped, without prefill and the wait for drafts.
        forwards: after which rows are stopped.
    """

    inputs: Mapping[str, Any] = field(repr=False)
    limits: Sequence[int]
    repetition: Sequence[int]
    drafts: list[Any] | None = field(default=None, repr=False)
    verification: Mapping[str, Any] = field(default_factory=dict)
    verify_every: int | None = None
    prefill: Prefill | None = None
    seconds: float | None = None
    forwards: int | None = None


class RowListener(RowWatch):
    """Keeps what rows generate and why they end, whether `generate` or an engine decodes them.

    It ends rows that run away, are too long, or take too long. Time runs from the second commit
    on: what lies in front of that is prefill, and waiting for drafts. Rows that began together have
    as many commits each, so that every row counts its own for the forwards of a budget.

    Args:
        request: says where rows end.
        eos: ids that end a row.
        clock: by which `request.seconds` count.

    Attributes:
        output: of each row so far; complete once it was `finished`.
        accepted: drafted tokens that each commit of a row had, its prefill's first.
    """

    def __init__(
        self, request: DecodeRequest, eos: set[int], clock: Clock = time.perf_counter
    ) -> None:
        rows = len(request.limits)
        self.request, self.eos, self.clock = request, eos, clock
        self.output = [DecodedRow() for _ in range(rows)]
        self.accepted: list[list[int]] = [[] for _ in range(rows)]
        self.runaways = [RunawayWatch(limit) for limit in request.repetition]
        self._began: float | None = None

    @property
    def sampling(self) -> dict[str, Any]:
        """Returns the options for `generate`."""
        return {
            "stopping_criteria": StoppingCriteriaList([self]),
            "do_sample": False,
            "max_new_tokens": max(self.request.limits),
        }

    def record(self, row: int, tokens: list[int], drafted: int) -> None:
        self.output[row].tokens += tokens
        self.output[row].drafted += [place < drafted for place in range(len(tokens))]
        self.accepted[row].append(drafted)

    def end(self, row: int, new: Sequence[int]) -> int | None:
        output, left = self.output[row], self.request.limits[row] - len(self.output[row].tokens)
        for count, token in enumerate(new, start=1):
            if token in self.eos:
                return None  # it comes to its own end
            if self.runaways[row].add(token):
                output.truncated = REPETITION
                return count
            if count >= left:
                output.truncated = LENGTH
                return count
        output.truncated = self._stopped(row)
        return None if output.truncated is None else len(new)

    def _stopped(self, row: int) -> str | None:
        """Returns why the row may not go on, whatever it says."""
        forwards, seconds = self.request.forwards, self.request.seconds
        commits = len(self.accepted[row]) + 1  # this one is recorded behind it
        if forwards is not None and commits >= forwards:
            return BUDGET
        if seconds is None or commits == 1:
            return None
        now = self.clock()
        if self._began is None:
            self._began = now
        return TIME if now - self._began > seconds else None

    def finished(self) -> list[DecodedRow]:
        """Returns the rows, once all have ended."""
        for row, output in enumerate(self.output):
            if output.tokens and output.tokens[-1] in self.eos:
                output.tokens.pop()
                output.drafted.pop()
                output.truncated = None
            runs_away = output.truncated == REPETITION
            output.sound = self.runaways[row].sound if runs_away else len(output.tokens)
        return self.output


class DecodeResult(NamedTuple):
    """The rows of a request as they were decoded, and the figures of that."""

    rows: list[DecodedRow]
    stats: Stats


class PageDecoder:
    """Decodes what one page asks for, with nothing beside it; never suspends.

    Args:
        model: loaded.
        eos: ids that end a text.

    Attributes:
        max_rows: of a request; what could be a larger batch is several. `None` is any.
        own_seconds: of the page's own work so far, all that is no decoding.
    """

    max_rows: int | None = None

    def __init__(self, model: Any, eos: set[int]) -> None:
        self.model, self.eos, self.own_seconds = model, eos, 0.0

    def clock(self) -> float:
        """Returns the page's own seconds, by which times, budgets and costs are counted."""
        return time.perf_counter()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Returns what a function returns that does the page's own work."""
        return self._timed(function, *args)

    def _timed(self, function: Callable[..., T], *args: Any) -> T:
        began = time.perf_counter()
        try:
            return function(*args)
        finally:
            self.own_seconds += time.perf_counter() - began

    async def decode(self, requests: Sequence[DecodeRequest]) -> list[DecodeResult]:
        """Decode requests, side by side where that is possible."""
        return [decode_alone(request, self.model, self.eos) for request in requests]


def decode_alone(
    request: DecodeRequest, model: Any, eos: set[int], method: Method | None = None
) -> DecodeResult:
    """Decode one request, with nothing beside it.

    Args:
        method: by default `HSD` of the request's drafts, or a plain one without any.

    Raises:
        MemoryRanOutError: memory ran out.
    """
    if method is None:
        drafts = request.drafts
        method = Autoregressive() if drafts is None else HSD(drafts, **request.verification)
    listener = RowListener(request, eos)
    made = generate(
        model, request.inputs, method, prefill=request.prefill, on_tokens=listener.record,
        verify_every=request.verify_every, **listener.sampling,
    )  # fmt: skip
    return DecodeResult(listener.finished(), made.stats)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns what a coroutine returns that never suspends, without an event loop.

    Raises:
        Exception: what it raised.
    """
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise AssertionError("the coroutine waits for an event loop")


def release() -> None:
    """Give back memory that nothing refers to any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def stage_stats(stats: Stats, is_complete: bool = True) -> StageStats:
    """Returns figures of a stage. One that did not come to its end says nothing about speed."""
    acceptance, speed = stats.mean_acceptance_length, stats.tokens_per_second
    speeds = (acceptance, stats.aal, stats.decode_seconds, speed) if is_complete else ()
    return StageStats(stats.rows, stats.tokens, stats.nfe, stats.mode, *speeds)
