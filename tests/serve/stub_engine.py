"""An engine without a model, for tests of what stands before it.

Its tokens are a hash of (prompt ids, seed, place), so what a request says does not depend on who
else decodes, how many tokens a round commits, or whether it was preempted on the way. Its memory is
counted as `sooner.Engine`'s is.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sooner.engine.request import TokenLogprobs
from sooner.serve.jobs import GenerationJob

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


def job_options(job: GenerationJob) -> dict[str, Any]:
    """The options of a job that the stub knows."""
    stops, logprobs = sorted(job.stop_token_ids), job.sampling.get("logprobs")
    return {"max_new_tokens": job.max_tokens, "eos_token_id": stops, "logprobs": logprobs}


@dataclass(eq=False)
class StubRequest:
    """One row."""

    prompt: list[int]
    seed: int
    max_tokens: int
    stop_ids: frozenset[int]
    tell: Callable[[int, list[int], int], None]
    order: tuple[float, int]
    options: dict[str, Any] = field(default_factory=dict)
    output: list[int] = field(default_factory=list)
    to_prefill: int = 0
    is_waiting: bool = True
    num_preemptions: int = 0
    tokens: list[list[int]] | None = None
    error: Exception | None = None
    num_drafts: int = 0
    num_draft_tokens: int = 0
    cached_tokens: int = 0
    mode: str = "exact"
    logprobs: list[list[TokenLogprobs]] = field(default_factory=lambda: [[]])

    @property
    def finish_reason(self) -> str:
        return "stop" if self.output and self.output[-1] in self.stop_ids else "length"

    @property
    def is_prefilling(self) -> bool:
        return self.to_prefill > 0

    @property
    def has_ended(self) -> bool:
        return bool(self.output) and (
            len(self.output) >= self.max_tokens or self.output[-1] in self.stop_ids
        )


class StubEngine:
    """Continuous batching of rows that say hashes; one prefill chunk and one round a step.

    Args:
        max_rows: requests that it holds; one more is a mistake of its caller.
        prefill_chunk: prompt tokens that a step prefills, of one request after the other.
        blocks: how many tokens a row commits at once, chosen by its place.
        pages, page: key-value memory; `None` is any amount. A request begins when its prompt fits,
            and where no page is left the last in order loses its row and waits for another.
        words: token ids that it says.
        spend: called with the cost of a step: `prefill_cost` a token, `round_cost` a round.

    Attributes:
        failures: `(where, error)`, raised once each: in "admit", in "step" half-way through a
            round, in "cancel", or for one request alone in its "prefill".
        waiting: requests without a row, in order.
        admitted: every request, in the order of their admission.
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
    ) -> None:
        self.max_rows, self.prefill_chunk, self.blocks = max_rows, prefill_chunk, tuple(blocks)
        self.pages, self.page, self.words = pages, page, words
        self.spend, self.prefill_cost, self.round_cost = spend, prefill_cost, round_cost
        self.rows: list[StubRequest] = []
        self.waiting: list[StubRequest] = []
        self.admitted: list[StubRequest] = []
        self.failures: list[tuple[str, Exception]] = []
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

    def _pages_of(self, row: StubRequest) -> int:
        return -(-(len(row.prompt) + len(row.output) + self.block) // self.page)

    def add_request(
        self,
        inputs: Mapping[str, Any],
        *,
        seed: int | None = None,
        on_tokens: Callable[[int, list[int], int], None] | None = None,
        priority: float = 0.0,
        max_new_tokens: int = 16,
        eos_token_id: Iterable[int] = (),
        **options: Any,
    ) -> StubRequest:
        self._fail("admit")
        self._check_whole()
        assert seed is not None
        assert len(self.rows) < self.max_rows, "more requests than rows"
        (prompt,) = [[int(token_id) for token_id in row] for row in inputs["input_ids"]]
        request = StubRequest(
            prompt, seed, max_new_tokens, frozenset(eos_token_id),
            on_tokens or (lambda row, ids, drafted: None), (priority, len(self.admitted)), options,
        )  # fmt: skip
        self.admitted.append(request)
        self._wait(request)
        return request

    def _wait(self, request: StubRequest) -> None:
        request.is_waiting = True
        insort(self.waiting, request, key=lambda queued: queued.order)

    def _begin(self) -> None:
        """Give rows to those that wait, in order, as far as there is memory."""
        while self.waiting and len(self.rows) < self.max_rows:
            pages = self.pages_used + self._pages_of(self.waiting[0]) + len(self.rows)
            if self.rows and self.pages is not None and pages > self.pages:
                return
            request = self.waiting.pop(0)
            request.is_waiting = False
            request.to_prefill = len(request.prompt) + len(request.output)
            self.rows.append(request)

    def _make_room(self) -> None:
        while self.pages is not None and self.pages_used > self.pages:
            last = max(self.rows, key=lambda row: row.order)
            self.rows.remove(last)
            last.num_preemptions += 1
            last.to_prefill = 0
            self._wait(last)

    def step(self) -> list[StubRequest]:
        self._check_whole()
        self.steps += 1
        self._make_room()
        self._begin()
        decoding = [row for row in self.rows if not row.is_prefilling]
        self.spend(self.round_cost if decoding else 0)
        ended = self._prefill()
        for number, row in enumerate(decoding):
            if number == len(decoding) // 2:
                self._break("step")
            self._round(row)
        if not decoding:
            self._break("step")
        ended += [row for row in self.rows if row.has_ended]
        for row in ended:
            self.rows.remove(row)
            row.tokens = [row.output]
        return ended

    def cancel(self, request: StubRequest) -> None:
        self._check_whole()
        line = self.waiting if request.is_waiting else self.rows
        assert request in line, "cancelled twice"
        self._break("cancel")
        line.remove(request)
        request.tokens = [request.output]

    def close(self) -> None:
        self.rows, self.waiting, self.is_closed = [], [], True

    def _prefill(self) -> list[StubRequest]:
        left, failed = self.prefill_chunk, []
        for row in [row for row in self.rows if row.is_prefilling]:
            tokens = min(left, row.to_prefill)
            left -= tokens
            row.to_prefill -= tokens
            self.spend(tokens * self.prefill_cost)
            try:
                if tokens:
                    self._fail("prefill")
            except Exception as error:
                row.error, row.to_prefill = error, 0
                failed.append(row)
                continue
            if tokens and not row.is_prefilling:
                self._emit(row, 1)
        for row in failed:
            row.output = []
        return failed

    def _round(self, row: StubRequest) -> None:
        size = self.blocks[(len(row.prompt) + len(row.output)) % len(self.blocks)]
        row.num_drafts += self.block > 1
        row.num_draft_tokens += self.block - 1
        self._emit(row, size)

    def _emit(self, row: StubRequest, limit: int) -> None:
        new: list[int] = []
        while len(new) < limit and not row.has_ended:
            new.append(token(row.prompt, row.seed, len(row.output), self.words))
            row.output.append(new[-1])
        row.logprobs[0] += map(logprob, new)
        row.tell(0, new, min(len(new), limit - 1))

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
