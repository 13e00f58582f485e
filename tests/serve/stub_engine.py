"""An engine without a model, for tests of what stands before it.

Its tokens are a hash of (prompt ids, seed, place), so what a request says does not depend on who
else decodes, how many tokens a round commits, or whether it was preempted on the way. Its memory is
counted as `sooner.Engine`'s is.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sooner import Autoregressive
from sooner.engine.request import Request, RequestOptions, TokenLogprobs
from sooner.engine.rows import Reason
from sooner.serve.engine_thread import ServedRequest

WORDS = range(1000)


class StubClock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def token(prompt: Sequence[int], seed: int, place: int, words: Sequence[int] = WORDS) -> int:
    """What a request says behind `place` tokens."""
    return words[hash((hash(tuple(prompt)), seed, place)) % len(words)]


def solo_output(
    prompt: Sequence[int],
    seed: int,
    max_tokens: int,
    stop_ids: Iterable[int] = (),
    words: Sequence[int] = WORDS,
) -> list[int]:
    """All that a request says, nobody else being there."""
    output: list[int] = []
    stops = set(stop_ids)
    while len(output) < max_tokens and not (output and output[-1] in stops):
        output.append(token(prompt, seed, len(output), words))
    return output


def logprob(token: int) -> TokenLogprobs:
    """What the stub tells of a token."""
    return TokenLogprobs(token, -token / 8, [(token, -token / 8), (token + 1, -9.0)])


def request_of(name: str, prompt: list[int], limit: int, **fields: Any) -> ServedRequest:
    """A request that the stub understands.

    Args:
        fields: of the request; `seed` and `logprobs` are its options'.
    """
    stops = frozenset(fields.pop("stop_token_ids", ()))
    options = RequestOptions(
        {"max_new_tokens": limit, "eos_token_id": sorted(stops)},
        fields.pop("seed", 1),
        logprobs=fields.pop("logprobs", None),
    )
    return ServedRequest(
        inputs={"input_ids": [prompt]}, options=options, method=Autoregressive(), rows=1, id=name,
        prompt_tokens=len(prompt), stop_token_ids=stops, **fields,
    )  # fmt: skip


@dataclass(eq=False)
class StubRow:
    """What the stub knows of a request."""

    request: Request
    prompt: list[int]
    seed: int
    max_tokens: int
    stop_ids: frozenset[int]
    order: tuple[float, int]
    output: list[int] = field(default_factory=list)
    to_prefill: int = 0

    @property
    def is_prefilling(self) -> bool:
        return self.to_prefill > 0

    @property
    def has_ended(self) -> bool:
        return bool(self.output) and (
            len(self.output) >= self.max_tokens or self.output[-1] in self.stop_ids
        )

    def end(self, reason: Reason | None = None, error: Exception | None = None) -> None:
        stop: Reason = "stop" if self.output and self.output[-1] in self.stop_ids else "length"
        self.request.finish([self.output], reason or stop, error)


class StubEngine:
    """Continuous batching of rows that say hashes; one prefill chunk and one round a step.

    Args:
        max_rows: requests that decode at once; others wait.
        prefill_chunk: prompt tokens that a step prefills, of one request after the other.
        blocks: how many tokens a row commits at once, chosen by its place.
        pages, page: key-value memory; `None` is any amount. A request begins when its prompt fits,
            and where no page is left the last in order loses its row and waits for another.
        words: token ids that it says.
        spend: called with the cost of a step: `prefill_cost` a token, `round_cost` a round.
        clock: seconds by which deadlines pass.

    Attributes:
        alarms: as of `Engine`.
        failures: `(where, error)`, raised once each: in "admit", in "step" half-way through a
            round, in "cancel", or for one request alone in its "prefill".
        waiting: requests without a row, in order.
        admitted: every request's row, in the order of their admission.
        is_broken: a failure in "step" or "cancel" was raised; it must not be asked again.
    """

    def __init__(
        self,
        *,
        max_rows: int = 8,
        prefill_chunk: int = 16,
        blocks: Sequence[int] = (1,),
        pages: int | None = None,
        page: int = 256,
        words: Sequence[int] = WORDS,
        spend: Callable[[float], None] = lambda seconds: None,
        prefill_cost: float = 0.01,
        round_cost: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.max_rows, self.prefill_chunk, self.blocks = max_rows, prefill_chunk, tuple(blocks)
        self.pages, self.page, self.words = pages, page, words
        self.spend, self.prefill_cost, self.round_cost = spend, prefill_cost, round_cost
        self.rows: list[StubRow] = []
        self.waiting: list[StubRow] = []
        self.admitted: list[StubRow] = []
        self.failures: list[tuple[str, Exception]] = []
        self.alarms = Counter[str]()
        self.is_broken = self.is_closed = self.used_when_broken = False
        self.steps = 0

    @property
    def is_idle(self) -> bool:
        return not (self.rows or self.waiting)

    @property
    def block(self) -> int:
        """Slots that a round writes for a row at most."""
        return max(self.blocks)

    @property
    def pages_used(self) -> int:
        return sum(map(self._pages_of, self.rows))

    @property
    def longest(self) -> int | None:
        """Tokens that a request can have, prompt and answer."""
        return None if self.pages is None else self.pages * self.page - self.block

    def _pages_of(self, row: StubRow) -> int:
        return -(-(len(row.prompt) + len(row.output) + self.block) // self.page)

    def add(self, request: Request) -> None:
        self._fail("admit")
        self._check_whole()
        options = request.options
        assert options.seed is not None
        (prompt,) = [[int(token_id) for token_id in row] for row in request.inputs["input_ids"]]
        request.tokens, request.finish_reasons = None, []
        row = StubRow(
            request, prompt, options.seed, options.sampling["max_new_tokens"],
            frozenset(options.sampling["eos_token_id"]), (request.priority, len(self.admitted)),
        )  # fmt: skip
        self.admitted.append(row)
        self._wait(row)

    def _wait(self, row: StubRow) -> None:
        row.request.is_waiting = True
        insort(self.waiting, row, key=lambda queued: queued.order)

    def _begin(self) -> None:
        """Give rows to those that wait, in order, as far as there is memory."""
        while self.waiting and len(self.rows) < self.max_rows:
            pages = self.pages_used + self._pages_of(self.waiting[0]) + len(self.rows)
            if self.rows and self.pages is not None and pages > self.pages:
                return
            row = self.waiting.pop(0)
            row.request.is_waiting = False
            row.to_prefill = len(row.prompt) + len(row.output)
            self.rows.append(row)

    def _make_room(self) -> None:
        while self.pages is not None and self.pages_used > self.pages:
            last = max(self.rows, key=lambda row: row.order)
            self.rows.remove(last)
            last.request.num_preemptions += 1
            last.to_prefill = 0
            self._wait(last)

    def step(self) -> None:
        self._check_whole()
        self.steps += 1
        for row in [*self.rows, *self.waiting]:
            if row.request.deadline is not None and row.request.deadline <= self.clock():
                self._drop(row, "deadline")
        self._make_room()
        self._begin()
        decoding = [row for row in self.rows if not row.is_prefilling]
        self.spend(self.round_cost if decoding else 0)
        self._prefill()
        for number, row in enumerate(decoding):
            if number == len(decoding) // 2:
                self._break("step")
            self._round(row)
        if not decoding:
            self._break("step")
        for row in [row for row in self.rows if row.has_ended]:
            self.rows.remove(row)
            row.end()

    def cancel(self, request: Request, reason: Reason = "cancelled") -> None:
        self._check_whole()
        [row] = [row for row in [*self.rows, *self.waiting] if row.request is request]
        self._break("cancel")
        self._drop(row, reason)

    def _drop(self, row: StubRow, reason: Reason) -> None:
        (self.waiting if row in self.waiting else self.rows).remove(row)
        row.end(reason)

    def close(self) -> None:
        self.rows, self.waiting, self.is_closed = [], [], True

    def _prefill(self) -> None:
        left = self.prefill_chunk
        for row in [row for row in self.rows if row.is_prefilling]:
            tokens = min(left, row.to_prefill)
            left -= tokens
            row.to_prefill -= tokens
            self.spend(tokens * self.prefill_cost)
            try:
                if tokens:
                    self._fail("prefill")
            except Exception as error:
                self.rows.remove(row)
                row.end("error", error)
                continue
            if tokens and not row.is_prefilling:
                row.request.prefill = self  # type: ignore[assignment]
                self._emit(row, 1)
                row.request.prefill = None

    def _round(self, row: StubRow) -> None:
        size = self.blocks[(len(row.prompt) + len(row.output)) % len(self.blocks)]
        row.request.drafts.note(self.block - 1)
        self._emit(row, size)

    def _emit(self, row: StubRow, limit: int) -> None:
        new: list[int] = []
        while len(new) < limit and not row.has_ended:
            new.append(token(row.prompt, row.seed, len(row.output), self.words))
            row.output.append(new[-1])
        row.request.logprobs = row.request.logprobs or [[]]
        row.request.logprobs[0] += map(logprob, new)
        on_tokens = row.request.options.on_tokens
        assert on_tokens is not None
        on_tokens(0, new, min(len(new), limit - 1))

    def _check_whole(self) -> None:
        if self.is_broken:
            self.used_when_broken = True
            raise AssertionError("a broken engine was asked again")

    def _fail(self, where: str) -> None:
        for failure in self.failures:
            if failure[0] == where:
                self.failures.remove(failure)
                raise failure[1]

    def _break(self, where: str) -> None:
        """Fail, and stay broken."""
        try:
            self._fail(where)
        except Exception:
            self.is_broken = True
            raise
