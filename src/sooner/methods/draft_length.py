"""How many tokens of a chain to draft: a fixed number, or the one that measurably pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np

from ..engine.interface import Outcome
from .context import Context
from .controller import Candidates, RoundCost
from .experience import LOOKUP, WEIGHT, Acceptance, chain_tokens, rounds_to_the_end

MEMORY = 0.85
"""Weight that the acceptance seen so far keeps from round to round."""
KNOWN_WEIGHT = 20.0
"""Draft tokens' worth of the acceptance of earlier rounds, once it is known: recent rounds are few,
and scatter so much that drafting would end where it pays."""
DOUBT = 2.5
"""Standard deviations by which recent rounds lie off earlier ones when the text has changed."""
DEPTH_WEIGHT = 6.0
"""Draft tokens' worth of the belief that acceptance is the same at every depth."""
FIRST, TRIAL = 4, 2
"""Draft tokens of the first draft of a pair that is thought to be good, and of any other trial."""
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
        each = 1 / len(drafted)
        for row, (many, right) in enumerate(zip(drafted, accepted, strict=True)):
            self._accepted += each * right
            self._refused += each * (right < many)  # nothing is verified behind the first refusal
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

    def chances(self, largest: int) -> np.ndarray:
        """Returns the chance at each depth `1 .. largest`."""
        rate, depths = self.rate, self._depths[:largest]
        weighed = [
            (right + DEPTH_WEIGHT * rate) / (verified + DEPTH_WEIGHT) for right, verified in depths
        ]
        return np.array(weighed + [rate] * (largest - len(weighed)))


class DraftLength:
    """Always the same number of draft tokens; subclasses learn from what rounds cost and gave."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def takes_rows(self, prompt: int, limit: int | None, left: Sequence[int] | None = None) -> bool:
        """Returns whether rows that begin, with prompts of so many tokens and up to `limit` new
        ones, are worth the draft's prefill; `left` as of `choose`."""
        return True

    def prefilled(self, prompt: int, seconds: float) -> None:
        """Records that the draft's prefill of so many tokens took so long."""

    def choose(
        self,
        rows: Sequence[int],
        may_draft: Sequence[bool] | None = None,
        began: Sequence[DraftLength] | None = None,
        available: Sequence[bool] | None = None,
        left: Sequence[int] | None = None,
        is_ragged: bool | None = None,
    ) -> list[int]:
        """Returns draft tokens of the next round for each of `rows` (original numbers); 0 is plain.

        Args:
            may_draft: those that the draft model can draft for; `None` is all of them.
            began: what chose the drafts of each when it was prefilled; `None` is this one.
            available: those that have a draft without a forward of the draft model.
            left: tokens that each has yet to generate, if that is known: unless requests come and
                go (`Requests.expect`), what counts is then when the last of them ends.
            is_ragged: the rows are of several lengths; `None`: that is not known.
        """
        return [self.largest] * len(rows)

    def close(self) -> None:
        """The batch has ended."""

    def observe(self, rows: Sequence[int], drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """`accepted` of `drafted` tokens of `rows`, which go on, were accepted."""

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        """A round that gave `tokens` a row took this long; on GPUs known a round late."""

    def observe_round(self, outcome: Outcome, drafted: Sequence[int], done: RoundCost) -> None:
        """Hands what a round gave, and what it took as soon as that is known, to `observe` and
        `observe_cost`; `done` is the round, but for its seconds."""
        tokens = 1 + sum(outcome.accepted) / len(outcome.accepted)
        outcome.round_time.then(
            lambda seconds: self.observe_cost(replace(done, seconds=seconds), tokens)
        )
        self.observe(outcome.rows.active, drafted, outcome.accepted)


def plan_round(
    length: DraftLength,
    context: Context,
    outcome: Outcome,
    matches: Sequence[int],
    members: Sequence[int] = (),
    began: Sequence[DraftLength] | None = None,
) -> tuple[list[int], RoundCost]:
    """Returns draft tokens of each row in the next round, and the round that verifies them.

    Args:
        matches: tokens of each row that were looked up.
        members: rows that the draft model drafts for.
        began: as of `DraftLength.choose`.
    """
    rows, may = outcome.rows, [row in members for row in range(len(matches))]
    is_ragged = len(set(context.runner.lengths)) > 1
    has, left = [many > 0 for many in matches], context.stopping.tokens_left(rows)
    sizes = length.choose(rows.active, may, began, has, left, is_ragged)
    drafted = [
        max(min(size, budget - 1), 0) if can else min(size, many)
        for size, budget, can, many in zip(sizes, outcome.budget, may, matches, strict=True)
    ]
    count, block = len(sizes), 1 + max(drafted)
    is_ragged |= min(count, block) > 1
    drafting = len(members) * any(drafted[row] for row in members)
    return drafted, RoundCost(count, block, members=drafting, is_ragged=is_ragged)


@dataclass
class RowState:
    """A row that decodes: acceptance of drafts from where its own are, and of its kind of prompts,
    counts of its own recent draft tokens, and tokens of its output and of its last round."""

    known: Acceptance
    prompts: Acceptance
    accepted: float = 0.0
    refused: float = 0.0
    output: int = 1
    last: int = 1

    @staticmethod
    def beginning(known: Acceptance, is_drafted: bool) -> RowState:
        """Returns a row of a kind; drafts that are looked up are accepted as often as in other
        texts."""
        return RowState(known if is_drafted else known.of((LOOKUP, known.kind)), known)

    def observe(self, drafted: int, accepted: int) -> None:
        """Records that a round verified `drafted` tokens and accepted `accepted` of them."""
        self.last = 1 + accepted
        self.output += self.last
        if drafted:
            self.accepted = MEMORY * self.accepted + accepted
            self.refused = MEMORY * self.refused + (accepted < drafted)

    def rate(self, usual: float) -> float:
        """Returns acceptance: of its recent rounds, and what is expected of one that begins."""
        expected = self.known.rate if self.known.is_known else usual
        return (self.accepted + WEIGHT * expected) / (self.accepted + self.refused + WEIGHT)


class AdaptiveDraftLength(DraftLength):
    """The number of draft tokens that a `Controller` finds to pay most, plain decoding included.

    Args:
        largest: upper limit of the draft length.
        note: called with each change of mind in one line.
        experience: the acceptance and times of earlier runs, and where more of them go.
        may_pay: the draft model's step can be faster than the target's; otherwise no row is drafted
            for.
    """

    def __init__(
        self,
        largest: int = 16,
        note: Callable[[str], None] | None = None,
        experience: Acceptance | None = None,
        may_pay: bool = True,
    ) -> None:
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
        self._size = 0  # of the last choice
        self._is_whole = False  # the last round accepted whole drafts of that size

    def takes_rows(self, prompt: int, limit: int | None, left: Sequence[int] | None = None) -> bool:
        known, closed = self.acceptance.experience, self._closed(left)
        return self.may_pay and known.pays(prompt, limit, self.largest, closed)

    def prefilled(self, prompt: int, seconds: float) -> None:
        self.acceptance.experience.prefilled(prompt, seconds)

    def close(self) -> None:
        for row in list(self._rows):
            self._end(row)

    def choose(
        self,
        rows: Sequence[int],
        may_draft: Sequence[bool] | None = None,
        began: Sequence[DraftLength] | None = None,
        available: Sequence[bool] | None = None,
        left: Sequence[int] | None = None,
        is_ragged: bool | None = None,
    ) -> list[int]:
        self._size, count = 0, len(rows)
        may = may_draft or [True] * count
        self._had_peers |= len({*rows, *self._rows}) > 1
        for row, length, can in zip(rows, began or [self] * len(rows), may, strict=True):
            if row not in self._rows:
                assert isinstance(length, AdaptiveDraftLength)
                known = length.acceptance.experience
                self._rows[row] = RowState.beginning(known, can)
                if can:
                    self.controller.reconsider()  # it may be a better one
        has = [flag or other for flag, other in zip(may, available or may, strict=True)]
        if not any(has):
            return [0] * count
        members, closed, times = sum(may), self._closed(left), self.controller.times
        draft, sizes = times.draft(members), range(1, self.largest + 1)
        is_first = members and not draft and self.acceptance.rate >= 1 / 2
        trial = min(FIRST if is_first else TRIAL, self.largest)

        def candidates() -> Candidates[int]:
            tokens = self._tokens([self._rows[row] for row in rows], has, closed)
            many = np.array(sizes)
            return Candidates(sizes, 1 + many, tokens[1:], many * draft, trial - 1, members > 0)

        forget = partial(self.acceptance.forget, TRIAL_MEMORY)
        until = fmean(closed) if closed else 0.0
        size = self.controller.choose(
            count, candidates, forget=forget, is_ragged=is_ragged, left=until
        )
        if size and self._is_whole and size >= times.longest(count, is_ragged) - 1:
            # What a longer block takes is a guess, and such drafts are worth a try.
            size = min(2 * size, self.largest)
        self._size = size or 0
        return [self._size] * count

    def _tokens(
        self, rows: Sequence[RowState], has: Sequence[bool], left: Sequence[int] | None
    ) -> np.ndarray:
        """Returns expected tokens of a round and row for `0 .. largest` draft tokens; of a closed
        batch, what plain decoding would have to give to end as soon."""
        chances = self.acceptance.chances(self.largest)
        if not self._had_peers:  # by the depth of its drafts
            return chain_tokens(chances)
        usual = self.acceptance.rate
        rates = [row.rate(usual) if can else 0.0 for row, can in zip(rows, has, strict=True)]
        tokens = chain_tokens(chances, rates)
        self._shares = np.ones(len(tokens))
        if left is not None:
            alike = np.minimum(chances * fmean(rates) / max(chances[0], 1e-9), 0.999)
            rounds = rounds_to_the_end(left, alike, self.requests.of_half(len(left)))
            self._shares = rounds[0] / rounds / chain_tokens(alike)
        return tokens * self._shares

    def _closed(self, left: Sequence[int] | None) -> Sequence[int] | None:
        """Returns `left` of rows that end together, since no requests come and go."""
        is_closed = left is not None and len(left) > 1 and not self.requests.rows
        return left if is_closed else None

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
            state = RowState.beginning(self.acceptance.experience, True)
            self._rows.setdefault(row, state).observe(many, right)
        self._is_whole = bool(self._size) and all(
            self._size == many == right for _, many, right in entries
        )
        known = [self._rows[row].known for row, _, _ in entries]
        self.acceptance.observe([item[1] for item in entries], [item[2] for item in entries], known)

    def _end(self, row: int) -> None:
        """A row has gone; what its last round gave is not known."""
        state = self._rows.pop(row)
        state.prompts.end(state.output + state.last)
