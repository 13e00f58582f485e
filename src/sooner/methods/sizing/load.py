"""What a draft is worth to a row that joins others, before its prompt is read for it.

A draft's prefill, its vision tower included, is paid once a row; what it saves depends on how much
the row will say, how often its drafts are accepted, and how many rows share a round by then.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from .costs import LOOKUP, Acceptance, LinearTimes, RoundCost, SizeTimes, rounded

FORGET = 0.98
"""Weight that earlier requests keep with each one that begins: some fifty count."""
MIN_SAVED = 0.02
"""Share of a request's rounds that drafts of its kind have to save besides their prefill."""
EXPLORE_EVERY = 64
"""One request in so many of a kind that gets no drafts is drafted for, since drafts change."""
SIZES = (1, 2, 3, 4, 6, 8, 11, 16, 24, 32)
"""Draft lengths that are compared."""
USUAL_ROUND, USUAL_DRAFT = (1.0, 0.15, 0.05), (1.0, 0.3)
"""Shares of a cost that are fixed, and of a row, and of its draft token: only for what has been
timed at one size alone."""


@dataclass
class Traffic:
    """Requests of one kind that began lately; old ones count less.

    Attributes:
        begun, ended: how many, and `output`: tokens of those that ended.
        prefills: seconds of their drafts' prefills by tokens of the prompt.
        alone: tokens and rounds of those that had no draft of a model.
        left_out: that were not drafted for since one was.
    """

    begun: float = 0.0
    ended: float = 0.0
    output: float = 0.0
    prefills: SizeTimes = field(default_factory=SizeTimes)
    alone: tuple[float, float] = (1.0, 1.0)
    left_out: int = 0

    @property
    def tokens(self) -> float:
        """Tokens that such a request says."""
        return max(self.output / self.ended, 1.0) if self.ended else 1.0

    @property
    def typical_prefill(self) -> float:
        """Seconds of a draft's prefill; 0 before the first."""
        sizes = self.prefills.sizes
        return self.prefills.seconds(sizes[len(sizes) // 2]) if sizes else 0.0

    @property
    def each(self) -> float:
        """Tokens a round without a draft of a model."""
        return self.alone[0] / self.alone[1]


class RequestLoad:
    """How many requests there are, of which kinds, and what their rounds cost.

    Kept from batch to batch. *Machine time of a request* is what it takes of the rounds that it
    shares: with `n` rows and `C` seconds a round, `rounds / n * C`. One request begins in every
    step or two, a draft's prefill is a step of its own, and each step has a round: so there are no
    more rows than begin in the rounds that one takes, and drafts, which end a row sooner, leave
    fewer to share a round.

    Attributes:
        rows, waiting: requests that decode or are prefilled, and that wait.
        kinds: requests by kind, whatever tells them apart.
        round_times: of rounds, by rows and by draft tokens in all rows.
        draft_times: of draft forwards, by rows.
    """

    def __init__(self) -> None:
        self.rows = self.waiting = 0
        self.kinds: dict[Hashable, Traffic] = {}
        self.round_times, self.draft_times = LinearTimes(USUAL_ROUND), LinearTimes(USUAL_DRAFT)
        self._max_rows = 1
        self._steps = self._draft_steps = self._joins = 0.0  # while requests waited

    def tell(self, rows: int, waiting: int, max_rows: int) -> None:
        """A step begins."""
        self.rows, self.waiting, self._max_rows = rows, waiting, max_rows
        self._steps += self.has_backlog

    @property
    def has_backlog(self) -> bool:
        """Whether requests wait for others to be prefilled, not for a row."""
        return self.waiting > 0 and self.rows < self._max_rows

    def begin(self, kind: Hashable) -> None:
        """A request of this kind has been prefilled."""
        for traffic in self.kinds.values():
            traffic.begun *= FORGET
        self.kinds.setdefault(kind, Traffic()).begun += 1
        if self.has_backlog:
            self._steps *= FORGET
            self._draft_steps *= FORGET
            self._joins = FORGET * self._joins + 1

    def end(self, kind: Hashable, tokens: int, rounds: int | None = None) -> None:
        """One has said `tokens`, in so many `rounds` if no model drafted for it."""
        traffic = self.kinds.setdefault(kind, Traffic())
        traffic.ended, traffic.output = FORGET * traffic.ended + 1, FORGET * traffic.output + tokens
        if rounds:
            count, took = traffic.alone
            traffic.alone = FORGET * count + tokens, FORGET * took + rounds

    def prefilled(self, kind: Hashable, tokens: int, seconds: float, steps: int) -> None:
        """A draft's prefill of so many tokens took so long, in so many steps of the engine."""
        self.kinds.setdefault(kind, Traffic()).prefills.add(rounded(tokens), seconds)
        self._draft_steps += steps * self.has_backlog

    def observe(self, done: RoundCost) -> None:
        """A round was timed."""
        self.round_times.add((1, done.rows, done.rows * (done.block - 1)), done.seconds)
        if done.forwards and done.drafting_rows and not done.missed:
            self.draft_times.add((1, done.drafting_rows), done.drafting / done.forwards)

    @property
    def is_known(self) -> bool:
        """Whether rounds, drafts and whole requests have been seen."""
        has_ended = any(traffic.ended for traffic in self.kinds.values())
        return bool(self.round_times.count and self.draft_times.count and has_ended)

    def pays(
        self,
        kind: Hashable,
        rates: Mapping[Hashable, float],
        prompt: int,
        limit: int | None,
        largest: int,
    ) -> bool:
        """Returns whether a request that begins should be drafted for.

        Args:
            kind: of the request.
            rates: acceptance by kind.
            prompt: its tokens, and `limit`: new tokens that it may say.
            largest: draft length.
        """
        traffic = self.kinds.setdefault(kind, Traffic())
        if not (self.is_known and traffic.prefills.sizes):
            return True
        tokens = traffic.tokens if traffic.ended else float(limit or 1)
        tokens = min(tokens, limit) if limit else tokens
        saved = self.plan(rates, largest).get(kind, 0.0) * tokens
        return self._takes(traffic, saved > traffic.prefills.seconds(rounded(prompt)))

    def pays_together(
        self, kind: Hashable, rate: float, prompt: int, left: Sequence[int], largest: int
    ) -> bool:
        """Returns whether rows that begin together, and that nobody joins, should be drafted for.

        Args:
            kind: of their prompts, and `rate`: acceptance of that kind.
            prompt: tokens of a prompt, and `left`: what each row will say.
            largest: draft length.
        """
        from .closed import rounds_to_the_end  # a server's requests need none of it

        traffic, rows = self.kinds.setdefault(kind, Traffic()), len(left)
        if not (self.is_known and traffic.prefills.sizes):
            return True
        lasts = rounds_to_the_end(left, [rate] * largest, self.of_half(rows))
        seconds = [
            lasts[size] * (
                self.round_times.seconds((1, rows, rows * size))
                + size * self.draft_times.seconds((1, rows))
            )
            for size in (0, *(size for size in SIZES if size <= largest))
        ]  # fmt: skip
        saved = seconds[0] - min(seconds[1:]) - MIN_SAVED * seconds[0]
        return self._takes(traffic, saved > rows * traffic.prefills.seconds(rounded(prompt)))

    def of_half(self, rows: int) -> float:
        """Time of a round of half of `rows`, over that of all."""
        whole = self.round_times.seconds((1, rows, 0))
        return self.round_times.seconds((1, (rows + 1) // 2, 0)) / whole if whole else 1.0

    def _takes(self, traffic: Traffic, is_worth: bool) -> bool:
        """Returns whether a request is drafted for: some that are not worth it are, since drafts
        change.
        """
        if is_worth or traffic.left_out >= EXPLORE_EVERY:
            traffic.left_out = 0
            return True
        traffic.left_out += 1
        return False

    def plan(self, rates: Mapping[Hashable, float], largest: int) -> dict[Hashable, float]:
        """Returns what takes least machine time, with as many requests as decode and wait now.

        Returns:
            the kinds that are drafted for, and the seconds that each of their tokens saves; drafts'
            prefills are not counted. Nothing is plain decoding.
        """
        kinds = {kind: entry for kind, entry in self.kinds.items() if entry.begun and kind in rates}
        whole = sum(entry.begun for entry in kinds.values())
        before = self.request_seconds(kinds, (), 0, rates)
        drafted, saved = list[Hashable](), dict[Hashable, float]()
        for kind in sorted(kinds, key=lambda entry: rates[entry], reverse=True):
            drafted.append(kind)
            share = kinds[kind].begun / whole
            sizes = [size for size in SIZES if size <= largest]
            after = min(self.request_seconds(kinds, drafted, size, rates) for size in sizes)
            wins = before - after - MIN_SAVED * before
            if wins <= share * kinds[kind].typical_prefill:
                break
            saved[kind] = wins / (share * kinds[kind].tokens)
            before = after
        return saved

    def request_seconds(
        self,
        kinds: Mapping[Hashable, Traffic],
        drafted: Collection[Hashable],
        size: int,
        rates: Mapping[Hashable, float],
    ) -> float:
        """Machine time of a request's rounds, mean over kinds.

        Args:
            kinds: of requests, with their shares.
            drafted: those of them that are drafted for, with `size` tokens a round.
            rates: acceptance by kind.
        """
        whole = sum(entry.begun for entry in kinds.values()) or 1.0
        rounds = drafting = steps = 0.0
        if self._joins:
            steps = max(self._steps - self._draft_steps, 0.0) / self._joins
        for kind, entry in kinds.items():
            share, each = entry.begun / whole, entry.each
            if kind not in drafted:  # what is found in its text fills the block of the others
                rate = rates.get((LOOKUP, kind), 0.0)
                each = max(each, sum(rate**depth for depth in range(size + 1)))
            else:
                each = sum(rates[kind] ** depth for depth in range(size + 1))
                steps += share
                drafting += share * entry.tokens / each
            rounds += share * entry.tokens / each
        if not rounds:
            return 0.0
        rows = float(max(min(self.rows + self.waiting, self._max_rows), 1))
        if rows > 1 and steps:  # one of them is prefilled, in so many of its rounds
            rows = max(min(rows / (1 + steps / rounds), rounds / steps), 1.0)
        members = rows * drafting / rounds  # of a round
        often = min(members, 1.0) if rows == 1 else 1 - (1 - drafting / rounds) ** rows
        seconds = self.round_times.seconds((1, rows, often * rows * size))
        seconds += often * size * self.draft_times.seconds((1, max(members, 1.0)))
        return rounds / rows * seconds


def load_of(known: Acceptance) -> RequestLoad:
    """Returns what is known of the requests whose drafts' acceptance is kept there, of all
    kinds.
    """
    whole = known.whole or known
    if whole.load is None:
        whole.load = RequestLoad()
    load: RequestLoad = whole.load
    return load
