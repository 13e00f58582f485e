"""What a run did and where its time went; every mean is derived from a histogram."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch

if TYPE_CHECKING:
    from .deviation import Deviation  # of relaxed runs alone

logger = logging.getLogger("sooner")

EXACT, RELAXED, APPROXIMATE = "exact", "relaxed", "approximate"
ALARMS = ("acceptance", "mismatch", "worker")
"""Kinds of `Stats.alarms`."""
PHASES = ("vision", "prefill", "draft_prefill", "draft", "verify", "other")

SUMS = (
    "tokens", "decode_tokens", "nfe", "num_draft_tokens", "num_draft_levels", "rows",
    "draft_forwards", "draft_forward_seconds", "rank_seconds", "acceptance_histogram",
    "num_checked_blocks", "num_check_forwards",
)  # fmt: skip
"""Counts of a run that are added to those of another."""

FIGURES = (
    "method", "mode", "tokens", "nfe", "num_spec_steps", "num_draft_tokens", "num_draft_levels",
    "num_accepted_draft_tokens", "acceptance_rate", "mean_acceptance_length",
    "acceptance_histogram", "accepted_run_length", "aal", "decode_seconds", "tokens_per_second",
    "seconds", "cache_bytes", "graphs", "graph_bytes", "capture_seconds", "notes", "alarms",
    "num_checked_blocks", "num_check_forwards",
)  # fmt: skip
"""Names of DESIGN's metrics, in the order of `Stats.as_dict`."""

MAX_NOTES, MAX_VALUES = 500, 8192
"""What is kept of a run that goes on for days."""


class LastValues(list[Any]):
    """The last `MAX_VALUES` values or more, and the mean of all there ever were."""

    added, total = 0, 0.0  # of all

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)

    def append(self, value: Any) -> None:
        super().append(value)
        self.added, self.total = self.added + 1, self.total + value
        if len(self) >= 2 * MAX_VALUES:
            del self[:-MAX_VALUES]

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(values)
        return self

    @property
    def mean(self) -> float:
        """Returns the mean of all values; 0 without any."""
        return self.total / self.added if self.added else 0.0


@dataclass
class DraftCount:
    """What was verified of rows: rounds that had a draft, and the nodes of their trees."""

    rounds: int = 0
    tokens: int = 0

    def note(self, nodes: int) -> None:
        """Records that a round of a row verified so many."""
        self.rounds += nodes > 0
        self.tokens += nodes


@dataclass
class _Phase:
    """One that is open: seconds of the phases within it."""

    nested: float = 0.0


@dataclass
class Stats:
    """Counts one run over all its rows.

    Attributes:
        mode: `exact`, `relaxed` or `approximate`.
        method: name of the method.
        device: where the target runs. On CUDA times are the device's own and known a little later,
            when it has got there; all of them once the run is closed.
        tokens: committed new tokens, all rows.
        decode_tokens: those behind each row's first, which the prefill already decides.
        nfe: sequential target forwards, the prefill included.
        num_draft_tokens: draft tokens that were verified, all nodes of a tree.
        num_draft_levels: draft tokens that could have been accepted: of each tree its deepest
            level, of a chain every token.
        acceptance_histogram: accepted draft tokens of a decoding step -> number of row steps.
        runs: tokens between two rejections (PEARL's and ParallelVLM's M), one entry a run; of steps
            that verified drafts. See `record_step` for what a tree rejects.
        seconds: time of each phase of `PHASES`, every second in one of them.
        verify_seconds: for each block size (root and nodes), the seconds of every such forward.
        draft_seconds: mean seconds of a draft forward in each round that was not catching up.
        draft_forwards, draft_forward_seconds: all draft forwards and their time.
        rows: rows of the batch.
        draft_is_hidden: draft forwards ran beside the target's, so they are not in the run's time.
        rank_seconds: time spent ranking visual tokens within the prefill.
        notes: decisions worth telling, such as why a draft length was chosen.
        alarms: of those what somebody should look into, by kind: drafts whose `acceptance` fell
            until they paid no more, a block that is a `mismatch` of its plain recomputation, and a
            `worker` that drafts no more. Requests of one engine count them together.
        num_checked_blocks, num_check_forwards: blocks of rows that were recomputed plainly, and
            target forwards that took, which `nfe` does not count.
        cache_bytes, draft_cache_bytes: allocated key-value slots of target and draft.
        graphs, graph_bytes, capture_seconds: graphs that the run captured, the memory that all take
            beside weights, keys and values, and the time that capturing took.
        deviation: of accepted tokens from the target's own, where a tolerance accepts others.
    """

    mode: str = EXACT
    method: str = ""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    tokens: int = 0
    decode_tokens: int = 0
    nfe: int = 0
    num_draft_tokens: int = 0
    num_draft_levels: int = 0
    acceptance_histogram: Counter[int] = field(default_factory=Counter)
    runs: LastValues = field(default_factory=LastValues)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    verify_seconds: dict[int, list[float]] = field(default_factory=lambda: defaultdict(LastValues))
    draft_seconds: list[float] = field(default_factory=LastValues)
    draft_forwards: int = 0
    draft_forward_seconds: float = 0.0
    rows: int = 1
    rank_seconds: float = 0.0
    draft_is_hidden: bool = False
    notes: list[str] = field(default_factory=list)
    alarms: Counter[str] = field(default_factory=Counter)
    num_checked_blocks: int = 0
    num_check_forwards: int = 0
    cache_bytes: int = 0
    draft_cache_bytes: int = 0
    graphs: int = 0
    graph_bytes: int = 0
    capture_seconds: float = 0.0
    deviation: Deviation | None = None
    _open_runs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    timeline: Timeline = field(init=False, repr=False, compare=False)
    _phase: _Phase | None = field(default=None, init=False, repr=False)  # the one that is open

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.device)
        self.runs = LastValues(self.runs)

    @contextmanager
    def phase(self, name: str) -> Iterator[Interval]:
        """Add the time of the enclosed block to phase `name`, and take it out of the phase around
        it, if there is one: every second counts once.

        Yields:
            The whole time of the block, known behind it.
        """
        around, inner, spent = self._phase, _Phase(), Interval()

        def count(seconds: float) -> None:
            self.seconds[name] += seconds - inner.nested
            if around is not None:
                around.nested += seconds
            spent.end(seconds)

        self._phase, start = inner, self.mark()
        try:
            yield spent
        finally:
            self._phase = around
            self.between(start, self.mark()).then(count)

    def move(self, name: str, interval: Interval) -> None:
        """Count a part of the phase that is open to phase `name` instead."""
        around = self._phase

        def count(seconds: float) -> None:
            self.seconds[name] += seconds
            if around is not None:
                around.nested += seconds

        interval.then(count)

    def record_drafting(self, forwards: int, time: Interval, is_typical: bool = True) -> None:
        """Count draft forwards, or levels of a tree, that took `time` together.

        Args:
            is_typical: they did what those of most rounds do, and did not catch up.
        """
        self.draft_forwards += forwards

        def count(seconds: float) -> None:
            self.draft_forward_seconds += seconds
            if is_typical:
                self.draft_seconds.append(seconds / forwards)

        time.then(count)

    @contextmanager
    def ranking(self) -> Iterator[None]:
        """Count the time of the enclosed block as spent ranking visual tokens."""
        start = self.mark()
        yield
        self.between(start, self.mark()).then(self.add_ranking)

    def add_ranking(self, seconds: float) -> None:
        self.rank_seconds += seconds

    def mark(self) -> Mark:
        """Returns this moment, on the device's clock."""
        return self.timeline.mark()

    def work_mark(self) -> Mark:
        """Returns the mark without what others took of the host, for what work costs."""
        return self.timeline.work_mark()

    def between(self, start: Mark, end: Mark) -> Interval:
        """Returns the time from one moment to a later one."""
        return self.timeline.between(start, end)

    def note(self, text: str, alarm: str = "") -> None:
        """Keep and log a decision worth telling.

        Args:
            alarm: one of `ALARMS`, where somebody should look into it: it is a warning then.
        """
        self.notes = [*self.notes[-MAX_NOTES + 1 :], text]
        if alarm:
            self.alarms[alarm] += 1
        logger.log(logging.WARNING if alarm else logging.INFO, text)

    def record_step(
        self, row: int, drafted: int, accepted: int, committed: int, levels: int | None = None
    ) -> None:
        """Count one decoding step of original row `row`.

        A step rejects where it accepts less than the deepest path that was offered. Nodes beside
        an accepted path are no rejection: siblings exclude each other, so no tree that branches
        can be accepted whole.

        Args:
            row: its index in the batch that the run began with.
            drafted: nodes of the tree.
            accepted: of them, those on the path that the target took.
            committed: new tokens of the row.
            levels: deepest level of the tree; by default `drafted`, as in a chain.
        """
        levels = drafted if levels is None else levels
        self.num_draft_tokens += drafted
        self.num_draft_levels += levels
        self.decode_tokens += committed
        self.acceptance_histogram[accepted] += 1
        if not drafted:
            return  # nothing could be rejected: plain steps must not make runs look long
        self._open_runs[row] += committed
        if accepted < levels:
            self.runs.append(self._open_runs.pop(row))

    def close_run(self, row: int) -> None:
        """Count what original row `row`, which has ended, said since its last rejection."""
        if length := self._open_runs.pop(row, 0):
            self.runs.append(length)

    def close_runs(self) -> None:
        """Count the tokens since the last rejection of each row as a run."""
        for row in list(self._open_runs):
            self.close_run(row)

    def merge(self, other: Stats, start: int) -> None:
        """Count what `other` has counted, too; its rows are numbered from `start` on from now."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.runs += other.runs
        for phase, seconds in other.seconds.items():
            self.seconds[phase] += seconds
        for row, length in other._open_runs.items():
            self._open_runs[start + row] = length
        new = [text for text in other.notes if text not in self.notes]
        self.notes = [*self.notes, *new][-MAX_NOTES:]
        if other.mode != EXACT:
            self.mode = other.mode
        if self.deviation is not None and other.deviation is not None:
            self.deviation.merge(other.deviation)

    @property
    def num_spec_steps(self) -> int:
        """Returns the row steps of decoding, the prefill not counted."""
        return sum(self.acceptance_histogram.values())

    @property
    def num_accepted_draft_tokens(self) -> int:
        return sum(accepted * steps for accepted, steps in self.acceptance_histogram.items())

    @property
    def acceptance_rate(self) -> float:
        """Returns the accepted share of the levels offered (ParallelVLM's τ); 0 without drafts."""
        levels = self.num_draft_levels
        return self.num_accepted_draft_tokens / levels if levels else 0.0

    @property
    def aal(self) -> float:
        """Returns the accepted draft tokens a step, without the bonus token (HSD's AAL)."""
        steps = self.num_spec_steps
        return self.num_accepted_draft_tokens / steps if steps else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """`1 + accepted / steps`; plain decoding has 1.0."""
        return 1.0 + self.aal

    @property
    def accepted_run_length(self) -> float:
        """Mean tokens between two rejections; 0 where nothing was drafted."""
        if not self.num_draft_tokens:
            return 0.0
        return self.runs.mean

    @property
    def decode_seconds(self) -> float:
        """Time after the first token: drafting, verifying and the rest."""
        return sum(self.seconds[name] for name in ("draft", "verify", "other"))

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def tokens_per_second(self) -> float:
        """Returns the decoding speed: `decode_tokens` over `decode_seconds`."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures of DESIGN's metric names, ready for JSON."""
        figures: dict[str, Any] = {name: getattr(self, name) for name in FIGURES}
        figures["acceptance_histogram"] = dict(sorted(self.acceptance_histogram.items()))
        figures["seconds"], figures["notes"] = dict(self.seconds), list(self.notes)
        figures["alarms"] = dict(self.alarms)
        if self.deviation is not None:
            figures["deviation"] = self.deviation.as_dict()
        return figures


class Event(Protocol):
    """A moment in a device's stream, as `torch.cuda.Event` has it."""

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float: ...

    def synchronize(self) -> None: ...


Mark = float | Event
"""A moment: seconds of the host's clock, or an event."""


def _cuda_event(device: torch.device) -> Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


EVENTS: dict[str, Callable[[torch.device], Event]] = {"cuda": _cuda_event}
"""By type of device, what puts an event into its current stream; for others the host's clock."""


class Interval:
    """Seconds between two moments, which are known now or later.

    Args:
        seconds: if they are known.
        is_lost: they never will be, for they say nothing about other times of their kind.
    """

    __slots__ = ("_listeners", "_seconds", "is_lost")

    def __init__(self, seconds: float | None = None, is_lost: bool = False) -> None:
        self._seconds, self.is_lost = seconds, is_lost
        self._listeners: list[Callable[[float], object]] = []

    def then(self, listener: Callable[[float], object]) -> None:
        """Calls `listener(seconds)`: at once if they are known, else when they are, if ever."""
        if self.is_lost:
            return
        if self._seconds is None:
            self._listeners.append(listener)
        else:
            listener(self._seconds)

    def end(self, seconds: float) -> None:
        """Records the seconds, and calls the listeners."""
        self._seconds = seconds
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(seconds)


NO_TIME = Interval(0.0)
LOST = Interval(is_lost=True)


class Timeline:
    """Marks moments of a run, and measures the times between them.

    Args:
        device: whose work is timed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._event = EVENTS.get(device.type)
        self._open: deque[tuple[Event, Event, Interval]] = deque()  # in the order of their ends

    def mark(self) -> Mark:
        """Now: when the device will have done what it was given so far."""
        return time.perf_counter() if self._event is None else self._event(self.device)

    def work_mark(self) -> Mark:
        """Marks a moment as `mark` does, without what others take of the host meanwhile: on CPUs it
        is the processor time of this thread. What threads of an operator beside it work while it
        sleeps is not in it."""
        return time.thread_time() if self._event is None else self._event(self.device)

    def between(self, start: Mark, end: Mark) -> Interval:
        """Returns the time from one moment to a later one, both marked by the same method."""
        if isinstance(start, float) and isinstance(end, float):
            return Interval(end - start)
        assert not isinstance(start, float)
        assert not isinstance(end, float)
        interval = Interval()
        self._open.append((start, end, interval))
        return interval

    def settle(self) -> None:
        """End the intervals that the device has passed; asks, and does not wait."""
        while self._open and self._open[0][1].query():
            start, end, interval = self._open.popleft()
            interval.end(start.elapsed_time(end) / 1e3)

    def close(self) -> None:
        """Wait for the device, and end every interval; when the run is over."""
        if self._open:
            self._open[-1][1].synchronize()
        self.settle()
