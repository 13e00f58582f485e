"""How many tokens of a chain to draft: a fixed number, or the one that measurably pays, by what is
learnt from run to run: acceptance by kind of prompt, and what requests are like."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import NormalDist, fmean

import numpy as np

from ..engine.interface import Outcome
from .context import Context
from .controller import Candidates, Controller, RoundCost, StepTimes

PRIOR, WEIGHT = 2 / 3, 3.0
"""Acceptance that is expected before anything is known, and draft tokens' worth of that belief."""
LONG_MEMORY = 0.995
"""Weight that acceptance keeps with each round of a row: some hundred rounds count."""
ENOUGH = 12.0
"""Verified draft tokens from which on acceptance counts as known."""
FORGET = 0.98
"""Weight that earlier requests keep with each one that ends: some fifty count."""
MIN_SAVED = 0.02
"""Share of a request's time that drafts have to save besides their prefill."""
EXPLORE_EVERY = 64
"""One request in so many that gets no drafts is drafted for, since drafts change."""


@dataclass
class Requests:
    """How many requests there are, and the controller of all their batches.

    Attributes:
        rows, waiting, max_rows: requests that decode or are prefilled, that wait, and most rows.
        steps, draft_steps, begun: steps of the engine while requests waited for the prefill of
            others, those of drafts' prefills, and requests that began; old ones count less.
    """

    rows: int = 0
    waiting: int = 0
    max_rows: int = 1
    steps: float = 0.0
    draft_steps: float = 0.0
    begun: float = 0.0
    controller: Controller[int] = field(default_factory=lambda: Controller("num_draft_tokens"))

    @property
    def times(self) -> StepTimes:
        return self.controller.times

    def expect(self, rows: int, waiting: int, max_rows: int) -> None:
        """Records the counts as a step of the engine begins."""
        self.rows, self.waiting, self.max_rows = rows, waiting, max_rows
        self.steps += self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether requests wait for the prefill of others, and not for a row."""
        return self.waiting > 0 and self.rows < self.max_rows

    def begin(self) -> None:
        """Records that a request was prefilled."""
        if self.is_behind:
            self.steps, self.draft_steps = FORGET * self.steps, FORGET * self.draft_steps
            self.begun = FORGET * self.begun + 1

    def sharing(self, rounds: float, is_drafted: bool) -> int:
        """Returns how many rows share a round where a request takes `rounds`.

        One prompt is prefilled at a time, in steps that have a round each, and a draft's prefill is
        such a step, too. So no more rows decode than begin within the rounds of one.
        """
        rows = max(min(self.rows + self.waiting, self.max_rows), 1)
        steps = max(self.steps - self.draft_steps, 0.0) / self.begun if self.begun else 0.0
        if rows > 1 and steps:
            steps += is_drafted
            rows = max(round(min(rows / (1 + steps / rounds), rounds / steps)), 1)
        return rows

    def of_half(self, rows: int) -> float:
        """Returns time of a round of half of `rows`, over that of all."""
        whole = self.times.round(rows, 1)
        return self.times.round((rows + 1) // 2, 1) / whole if whole else 1.0


class Acceptance:
    """How often draft tokens are accepted, kept from run to run if it is handed on.

    For one pair of models and one way to draft and sample.

    Attributes:
        whole: of all kinds of prompts, where this is of one `kind`.
        accepted, refused: draft tokens, those of old rounds with less weight.
        requests: of all kinds that there are, and the times of their rounds.
    """

    def __init__(self, whole: Acceptance | None = None, kind: Hashable = None) -> None:
        self.accepted = self.refused = 0.0
        self.whole, self.kind = whole, kind
        self.requests: Requests = Requests() if whole is None else whole.requests
        self._kinds: dict[Hashable, Acceptance] = {}
        # Requests of this kind: how many have ended with how many tokens, old ones count less;
        # seconds of a draft's prefill a token; and how many were not drafted for since one was.
        self.ended = self.output = self.prefill = 0.0
        self.left_out = 0

    def of(self, kind: Hashable) -> Acceptance:
        """Returns that of prompts of one kind: a draft that is right about pictures may be wrong
        about text. Until enough of them was seen, it leans on all."""
        if self.whole is not None:
            return self.whole.of(kind)
        return self._kinds.setdefault(kind, Acceptance(self, kind))

    def observe(self, drafted: int, accepted: int) -> None:
        """Records that a round verified `drafted` tokens of a row and accepted `accepted`."""
        if not drafted:
            return
        if self.whole is not None:
            self.whole.observe(drafted, accepted)
        self.accepted = LONG_MEMORY * self.accepted + accepted
        self.refused = LONG_MEMORY * self.refused + (accepted < drafted)

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to choose by."""
        return self.accepted + self.refused >= ENOUGH

    @property
    def rate(self) -> float:
        """Estimated chance that a draft token is accepted; `PRIOR` before the first."""
        expected = PRIOR if self.whole is None else self.whole.rate
        return (self.accepted + WEIGHT * expected) / (self.accepted + self.refused + WEIGHT)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """Records that a draft's prefill of so many tokens took so long."""
        self.prefill += (seconds / tokens - self.prefill) * (0.2 if self.prefill else 1.0)
        self.requests.draft_steps += self.requests.is_behind

    def end(self, tokens: int) -> None:
        """Records that a request has generated `tokens`."""
        self.ended, self.output = FORGET * self.ended + 1, FORGET * self.output + tokens

    def pays(
        self, prompt: int, limit: int | None, largest: int, left: Sequence[int] | None = None
    ) -> bool:
        """Returns whether requests of this kind that begin should be drafted for.

        *Machine time of a request* is what it takes of the rounds that it shares: with `n` rows and
        `C` seconds a round, `rounds / n * C`. A draft's prefill is worth it where drafts save more.

        Args:
            prompt: tokens of a prompt, and `limit`: new tokens that it may generate.
            largest: draft length.
            left: what each of them will generate, if they are a closed batch.
        """
        now = self.requests
        if not (self.prefill and self.ended and now.times.drafts.count):
            return True
        length = min(self.output / self.ended, limit or math.inf)
        if left is None:
            plain = self._seconds(length, 0)
            drafted = min(self._seconds(length, size) for size in range(1, largest + 1))
        else:
            plain, drafted = self._closed_seconds(left, length, largest)
        saved = plain * (1 - MIN_SAVED) - drafted
        is_worth = saved > self.prefill * prompt or self.left_out >= EXPLORE_EVERY
        self.left_out = 0 if is_worth else self.left_out + 1
        return is_worth

    def _seconds(self, length: float, size: int) -> float:
        """Returns machine time of a request of `length` tokens among those that come and go, with
        drafts of `size` tokens."""
        now, times = self.requests, self.requests.times
        rounds = length / sum(self.rate**depth for depth in range(1 + size))
        rows = now.sharing(rounds, size > 0)
        step = times.round(rows, 1 + size, size > 0 and rows > 1) + size * times.draft(rows)
        return rounds * step / rows

    def _closed_seconds(
        self, left: Sequence[int], length: float, largest: int
    ) -> tuple[float, float]:
        """Returns machine time of a request in a batch that ends together, plainly and with the
        best draft; `left` are the tokens of each."""
        now, times, rows = self.requests, self.requests.times, len(left)
        sizes = np.arange(1, largest + 1)
        rounds = rounds_to_the_end(left, np.full(largest, self.rate), now.of_half(rows))
        steps = sizes * times.draft(rows) + times.round_line(rows, 1 + sizes, rows > 1)
        drafted = float((steps * rounds[1:] / rounds[0]).min())
        return length / rows * times.round(rows, 1), length / rows * drafted


def chain_tokens(chances: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Returns expected tokens of a round and row for `0 .. n` draft tokens, `[1 + n]`.

    Args:
        chances: at each of `n` depths, `[n]`, or of each row, `[rows, n]`: the mean of what rows
            give is not what their mean would.
        weights: of rows in that mean, `[rows]`, in all 1; `None`: they count the same.
    """
    return 1 + _sums(np.average(np.atleast_2d(chances).cumprod(1), 0, weights))


def _sums(values: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], values.cumsum()])


def rounds_to_the_end(left: Sequence[int], chances: np.ndarray, fewer: float) -> np.ndarray:
    """Returns rounds that a closed batch takes with `0 .. n` draft tokens a round, `[1 + n]`.

    A closed batch lasts as long as its slowest row. Rows are taken to be alike. With `l` tokens
    left to a row, and `m` tokens a round with variance `v`, it takes about `l / m` rounds with
    variance `v l / m^3`, and a little for what its last round gives too much (a renewal process).

    Args:
        left: tokens that each row has yet to generate.
        chances: that the draft token at each of `n` depths is accepted where those before it are.
        fewer: time of a round of half of the rows, over that of all: what a round takes of those
            that are left behind the typical row's end.
    """
    mean, longest = fmean(left), max(left)
    reached = chances.cumprod()
    accepted = _sums(reached)
    squares = _sums((2 * np.arange(len(chances)) + 1) * reached)
    tokens, variance = 1 + accepted, np.maximum(squares - accepted**2, 0.0)
    typical = (mean + (tokens + variance / tokens - 1) / 2) / tokens
    # The expected largest of so many standard normal numbers (Blom 1958, to 6 %).
    largest = NormalDist().inv_cdf((len(left) - math.pi / 8) / (len(left) - math.pi / 4 + 1))
    scatter = largest * np.sqrt(variance * typical)
    rounds: np.ndarray = typical + fewer * np.hypot(longest - mean, scatter) / tokens
    return rounds


MEMORY = 0.85
"""Weight that the acceptance seen so far keeps from round to round."""
KNOWN_WEIGHT = 20.0
"""Draft tokens' worth of the acceptance of earlier rounds, once it is known: recent rounds are few,
and scatter so much that drafting would end where it pays."""
DOUBT = 2.5
"""Standard deviations by which recent rounds lie off earlier ones when the text has changed."""
FALL, ODDS = 0.25, math.log(1000)
"""Share of earlier acceptance, and log odds from which on the recent one counts as fallen to it."""
DEPTH_WEIGHT = 6.0
"""Draft tokens' worth of the belief that acceptance is the same at every depth."""
FIRST, TRIAL = 4, 2
"""Draft tokens of the first draft of a pair that is thought to be good, and of any other trial."""
SPEED, SPEED_WEIGHT = 1.3, 4.0
"""Tokens of a round that are expected of a row that begins, and rounds' worth of that belief."""
SLOWEST = 16.0
"""Power of the rounds that a row of a closed batch takes to its end, by which rows are weighed: the
batch lasts as long as its slowest one."""
TYPICAL = 200.0
"""Tokens of a text that may end before its limit."""
TRIAL_MEMORY = 0.2
"""Weight that acceptance keeps when drafts are tried again: the text may have changed."""


class ChainAcceptance:
    """How often the draft token at each depth of a chain is accepted where those before it are.

    Recent rounds count more than old ones; depths of which little was seen take the chance of all.
    It begins with the acceptance of earlier runs, `experience`, and adds to it.
    """

    def __init__(self, experience: Acceptance) -> None:
        self.experience = experience
        self._accepted = WEIGHT * experience.rate
        self._refused = WEIGHT - self._accepted
        self._depths: list[list[float]] = []  # at each depth: accepted, verified
        self._odds = 0.0  # their logarithm, that acceptance has fallen

    def observe(
        self,
        drafted: Sequence[int],
        accepted: Sequence[int],
        known: Sequence[Acceptance] | None = None,
    ) -> None:
        """Records that a round verified `drafted` tokens of each row and accepted `accepted`;
        `known` is the acceptance of the kind of each row, and `None` is `experience`."""
        if not any(drafted):
            return
        self.forget(MEMORY)
        each, rate, is_known = 1 / len(drafted), self._earlier.rate, self._earlier.is_known
        for row, (many, right) in enumerate(zip(drafted, accepted, strict=True)):
            self._accepted += each * right
            self._refused += each * (right < many)  # nothing is verified behind the first refusal
            odds = right * math.log(FALL)
            odds += (right < many) * math.log((1 - FALL * rate) / (1 - rate))
            self._odds = max(self._odds + odds * is_known, 0.0)
            verified = min(many, right + 1)
            self._depths += [[0.0, 0.0] for _ in range(verified - len(self._depths))]
            for depth, counts in enumerate(self._depths[:verified]):
                counts[0] += each * (depth < right)
                counts[1] += each
            (known[row] if known else self.experience).observe(many, right)

    def forget(self, share: float) -> None:
        """Let what was seen so far weigh only `share` as much as before."""
        self._accepted *= share
        self._refused *= share
        self._depths = [[share * right, share * verified] for right, verified in self._depths]

    @property
    def rate(self) -> float:
        """Chance that a draft token is accepted, by recent rounds, and by earlier ones unless
        recent ones contradict them.
        """
        rate, verified = self.experience.rate, self._accepted + self._refused
        weight = KNOWN_WEIGHT if self.experience.is_known else 0.0
        if abs(self._accepted - verified * rate) > DOUBT * math.sqrt(verified * rate * (1 - rate)):
            weight = 0.0
        return (self._accepted + weight * rate) / (verified + weight)

    @property
    def fall(self) -> tuple[float, float] | None:
        """Returns the acceptance of earlier rounds and the recent one, where that is clearly lower
        (Page's test, 1954)."""
        recent = self._accepted / (self._accepted + self._refused)
        return (self._earlier.rate, recent) if self._odds > ODDS else None

    @property
    def _earlier(self) -> Acceptance:
        """Returns that of earlier rounds, of all kinds of prompts if little is known of this."""
        known = self.experience
        return known if known.is_known or known.whole is None else known.whole

    def chances(self, largest: int) -> np.ndarray:
        """Returns the chance at each depth `1 .. largest`."""
        rate, depths = self.rate, self._depths[:largest]
        weighed = [
            (right + DEPTH_WEIGHT * rate) / (verified + DEPTH_WEIGHT) for right, verified in depths
        ]
        return np.array(weighed + [rate] * (largest - len(weighed)))


@dataclass(frozen=True)
class RoundRows:
    """What is known of the rows of the next round when its draft length is chosen.

    Attributes:
        rows: their original numbers.
        may_draft: those that the draft model can draft for; `None` is all of them.
        began: what chose the drafts of each when it was prefilled; `None` is who chooses now.
        looked_up: chances of the tokens of each row's draft that takes no forward, `[tokens]`;
            `None` is a row without one.
        left: tokens that each has yet to generate, if that is known: unless requests come and go
            (`Requests.expect`), what counts is then when the last of them ends.
        is_ragged: the rows are of several lengths; `None`: that is not known.
        may_end_early: `left` is the most, as a stop id may end each of them before.
    """

    rows: Sequence[int]
    may_draft: Sequence[bool] | None = None
    began: Sequence[DraftLength] | None = None
    looked_up: Sequence[np.ndarray | None] | None = None
    left: Sequence[int] | None = None
    is_ragged: bool | None = None
    may_end_early: bool = False


class DraftLength:
    """Always the same number of draft tokens; subclasses learn from what rounds cost and gave."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def takes_rows(self, prompt: int, limit: int | None, left: Sequence[int] | None = None) -> bool:
        """Returns whether rows that begin, with prompts of so many tokens and up to `limit` new
        ones, are worth the draft's prefill; `left` as of `RoundRows`."""
        return True

    def prefilled(self, prompt: int, seconds: float) -> None:
        """Records that the draft's prefill of so many tokens took so long."""

    def choose(self, batch: RoundRows) -> list[int]:
        """Returns draft tokens of the next round for each row of `batch`; 0 is plain."""
        return [self.largest] * len(batch.rows)

    def close(self) -> None:
        """The batch has ended."""

    def observe(self, rows: Sequence[int], drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """`accepted` of `drafted` tokens of `rows`, which go on, were accepted."""

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        """A round that gave `tokens` a row took this long; on GPUs known a round late."""

    def observe_round(self, outcome: Outcome, drafted: Sequence[int], done: RoundCost) -> None:
        """Hands what a round gave, and what it took as soon as that is known, to `observe` and
        `observe_cost`; `done` is the round, but for its seconds."""
        rows = outcome.rows.active
        tokens = 1 + self.mean(rows, outcome.accepted)
        outcome.round_time.then(
            lambda seconds: self.observe_cost(replace(done, seconds=seconds), tokens)
        )
        self.observe(rows, drafted, outcome.accepted)

    def mean(self, rows: Sequence[int], accepted: Sequence[int]) -> float:
        """Returns what counts as accepted by a row, on average."""
        return sum(accepted) / len(rows)


def plan_round(
    length: DraftLength, context: Context, outcome: Outcome,
    looked_up: Sequence[np.ndarray | None], members: Sequence[int] = (),
    began: Sequence[DraftLength] | None = None,
) -> tuple[list[int], RoundCost]:  # fmt: skip
    """Returns draft tokens of each row in the next round, and the round that verifies them.

    Args:
        looked_up, began: as of `RoundRows`.
        members: rows that the draft model drafts for.
    """
    rows, may = outcome.rows, [row in members for row in range(len(looked_up))]
    is_ragged = len(set(context.runner.lengths)) > 1
    stopping = context.stopping
    left, may_end = stopping.tokens_left(rows), stopping.may_end_early
    sizes = length.choose(RoundRows(rows.active, may, began, looked_up, left, is_ragged, may_end))
    ready = [0 if chances is None else len(chances) for chances in looked_up]
    drafted = [
        max(min(size, budget - 1), 0) if can else min(size, many)
        for size, budget, can, many in zip(sizes, outcome.budget, may, ready, strict=True)
    ]
    count, block = len(sizes), 1 + max(drafted)
    is_ragged |= min(count, block) > 1
    drafting = len(members) * any(drafted[row] for row in members)
    return drafted, RoundCost(count, block, members=drafting, is_ragged=is_ragged)


@dataclass
class RowState:
    """A row that decodes: acceptance of its kind of prompts, whether the draft model drafts for it,
    counts of its own recent draft tokens, its rounds, and tokens of its output and last round."""

    known: Acceptance
    is_drafted: bool = True
    accepted: float = 0.0
    refused: float = 0.0
    rounds: int = 0
    output: int = 1
    last: int = 1

    def observe(self, drafted: int, accepted: int) -> None:
        """Records that a round verified `drafted` tokens and accepted `accepted` of them."""
        self.last = 1 + accepted
        self.output += self.last
        self.rounds += 1
        if drafted:
            self.accepted = MEMORY * self.accepted + accepted
            self.refused = MEMORY * self.refused + (accepted < drafted)

    @property
    def speed(self) -> float:
        """Tokens of a round so far, and what is expected of one that begins."""
        return (self.output + SPEED_WEIGHT * SPEED) / (self.rounds + SPEED_WEIGHT)

    def rate(self, usual: float) -> float:
        """Returns acceptance: of its recent rounds, and what is expected of one that begins."""
        expected = self.known.rate if self.known.is_known else usual
        return (self.accepted + WEIGHT * expected) / (self.accepted + self.refused + WEIGHT)


class AdaptiveDraftLength(DraftLength):
    """The number of draft tokens that a `Controller` finds to pay most, plain decoding included.

    Args:
        largest: upper limit of the draft length.
        note: called with each change of mind, as `Controller.note`.
        experience: the acceptance and times of earlier runs, and where more of them go.
        may_pay: the draft model's step can be faster than the target's; otherwise no row is drafted
            for.
    """

    def __init__(
        self, largest: int = 16, note: Callable[..., None] | None = None,
        experience: Acceptance | None = None, may_pay: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(largest)
        self.may_pay = may_pay
        known = experience if experience is not None else Acceptance()
        self.acceptance, self.requests = ChainAcceptance(known), known.requests
        self.controller = self.requests.controller
        if note is not None:
            self.controller.begin(note)
        self._rows: dict[int, RowState] = {}
        self._had_peers = False
        self._shares = np.ones(0)  # of each length's gain, what a closed batch keeps
        self._weights: dict[int, float] = {}  # of its rows, as they count for its end
        self._belief = 1.0  # chance that its rows go on to their limit

    def takes_rows(self, prompt: int, limit: int | None, left: Sequence[int] | None = None) -> bool:
        self.requests.begin()
        known, closed = self.acceptance.experience, self._closed(left)
        return self.may_pay and known.pays(prompt, limit, self.largest, closed)

    def prefilled(self, prompt: int, seconds: float) -> None:
        self.acceptance.experience.prefilled(prompt, seconds)

    def close(self) -> None:
        for row in list(self._rows):
            self._end(row)

    def choose(self, batch: RoundRows) -> list[int]:
        rows, count = batch.rows, len(batch.rows)
        may = batch.may_draft or [True] * count
        self._had_peers |= len({*rows, *self._rows}) > 1
        for row, length, can in zip(rows, batch.began or [self] * count, may, strict=True):
            if row not in self._rows:
                assert isinstance(length, AdaptiveDraftLength)
                known = length.acceptance.experience
                self._rows[row] = RowState(known, can)
                if can:
                    self.controller.reconsider()  # it may be a better one
        ready = batch.looked_up or [None] * count
        if not any(may) and all(chances is None or not len(chances) for chances in ready):
            return [0] * count
        members, closed, times = sum(may), self._closed(batch.left), self.controller.times
        self._belief = math.exp(-max(closed) / TYPICAL) if closed and batch.may_end_early else 1.0
        draft, sizes = times.draft(members), range(1, self.largest + 1)
        is_first = members and not draft and self.acceptance.rate >= 1 / 2
        trial = min(FIRST if is_first else TRIAL, self.largest)

        def candidates() -> Candidates[int]:
            tokens = self._tokens(rows, may, ready, closed)
            many = np.array(sizes)
            fall, drafting = self.acceptance.fall, many * draft
            return Candidates(sizes, 1 + many, tokens[1:], drafting, trial - 1, members > 0, fall)

        forget = partial(self.acceptance.forget, TRIAL_MEMORY)
        until = self._belief * fmean(closed) if closed else 0.0
        # What a text matches changes from round to round, and no draft has to be tried to see it.
        size = self.controller.choose(
            count, candidates, forget=forget, may_pause=any(may), is_ragged=batch.is_ragged,
            left=until,
        )  # fmt: skip
        return [size or 0] * count

    def _tokens(
        self, numbers: Sequence[int], may: Sequence[bool],
        looked_up: Sequence[np.ndarray | None], left: Sequence[int] | None,
    ) -> np.ndarray:  # fmt: skip
        """Returns expected tokens of a round and row for `0 .. largest` draft tokens; of a closed
        batch, what plain decoding would have to give to end as soon."""
        chances, rows = self.acceptance.chances(self.largest), [self._rows[row] for row in numbers]
        self._weights = {}
        if not self._had_peers and looked_up[0] is None:  # by the depth of its drafts
            return chain_tokens(chances)
        # Deep tokens are verified where those before them were right, in the better rows.
        shape, usual = np.minimum(chances / max(chances[0], 1e-9), 1.0), self.acceptance.rate
        lines = np.zeros((len(rows), self.largest))
        for line, row, can, ready in zip(lines, rows, may, looked_up, strict=True):
            if ready is not None:
                line[: len(ready)] = ready
            elif can:
                line[:] = row.rate(usual) * shape
        if left is None:
            self._shares = np.ones(1 + self.largest)
            return chain_tokens(lines)
        weights = np.ones(len(rows))
        if any(ready is not None for ready in looked_up):  # such rows differ in what they gain
            ends = np.array(left) / [row.speed for row in rows]
            weights = (ends / ends.max()) ** SLOWEST
        weights /= weights.sum()
        alike = np.minimum(weights @ lines, 0.999)
        rounds = rounds_to_the_end(left, alike, self.requests.of_half(len(left)))
        # If rows end earlier, the last one is any of them, whatever its drafts give.
        self._shares = self._belief * rounds[0] / rounds / chain_tokens(alike) + 1 - self._belief
        weights = self._belief * weights + (1 - self._belief) / len(rows)
        self._weights = dict(zip(numbers, weights, strict=True))
        return chain_tokens(lines, weights) * self._shares

    def _closed(self, left: Sequence[int] | None) -> Sequence[int] | None:
        """Returns `left` of rows that end together, since no requests come and go."""
        is_closed = left is not None and len(left) > 1 and not self.requests.rows
        return left if is_closed else None

    def mean(self, rows: Sequence[int], accepted: Sequence[int]) -> float:
        # Only what its slowest rows get brings the end of a closed batch nearer.
        weights = [self._weights.get(row, 0.0) for row in rows]
        whole = sum(weights)
        return float(np.dot(weights, accepted)) / whole if whole else super().mean(rows, accepted)

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        times = self.controller.times
        if done.missed and times.drafts.count:
            each = times.draft(done.drafting_rows)
            late = max(done.drafting - done.forwards * each, 0.0)
            self.controller.catch_up = late / done.missed
        share = float(self._shares[done.block - 1]) if done.block <= len(self._shares) else 1.0
        self.controller.observe(done, tokens * share)

    def observe(self, rows: Sequence[int], drafted: Sequence[int], accepted: Sequence[int]) -> None:
        for row in self._rows.keys() - set(rows):
            self._end(row)
        # Rows that have joined since took no part in the round, and their kind is not known yet.
        entries = [
            entry
            for entry in zip(rows, drafted, accepted, strict=True)
            if entry[0] in self._rows or entry[1]
        ]
        for row, many, right in entries:
            state = RowState(self.acceptance.experience)
            self._rows.setdefault(row, state).observe(many, right)
        entries = [entry for entry in entries if self._rows[entry[0]].is_drafted]
        known = [self._rows[row].known for row, _, _ in entries]
        self.acceptance.observe([item[1] for item in entries], [item[2] for item in entries], known)

    def _end(self, row: int) -> None:
        """A row has gone; what its last round gave is not known."""
        state = self._rows.pop(row)
        state.known.end(state.output + state.last)
