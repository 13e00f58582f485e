"""How many tokens of a chain to draft: a fixed number, or the one that measurably pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .costs import Costs, RoundCost, SizeTimes, rounded
from .pauses import LEAST_GAIN, Candidate, Pauses

MEMORY = 0.85
"""Weight that the acceptance seen so far keeps from round to round."""
LONG_MEMORY = 0.995
"""The same for what is kept from run to run: some hundred rounds count."""
PRIOR, WEIGHT = 2 / 3, 3.0
"""Acceptance that is expected before anything is known, and draft tokens' worth of that belief."""
KNOWN_WEIGHT = 10.0
"""Draft tokens' worth of the acceptance that was seen so far, once it is known: recent rounds are
few, and scatter so much that drafting would end where it pays."""
DOUBT = 2.5
"""Standard deviations by which recent rounds lie off what was known when the text has changed."""
DEPTH_WEIGHT = 6.0
"""Draft tokens' worth of the belief that acceptance is the same at every depth."""
ENOUGH = 12.0
"""Judged draft tokens from which on acceptance counts as known."""

TRIAL_TOKENS = 2
"""Draft tokens of a trial, and of the first drafts of a pair that is known to be bad."""

MEMORY_OF_FAILURE = 0.2
"""Weight that old acceptance keeps when speculation is tried again: the text may have changed."""

HOPELESS, JUDGED = 0.1, 4.0
"""Acceptance below which a row of a batch drafts no more, from so many judged tokens on."""

ROW_TRIAL_EVERY = 16
"""Rounds after which such a row drafts a little once more; the batch's forward has room for it."""

PROMPT_EVERY = 16
"""Of rows that join while drafting pauses, one in so many is drafted for: texts change."""


class Acceptance:
    """How often draft tokens are accepted, kept from run to run if it is handed on.

    For one pair of models and one way to draft and sample. Times are not kept: they follow the
    prompt's length and the batch, and a few rounds measure them anew.

    Attributes:
        accepted, refused: draft tokens, those of old rounds with less weight.
        is_paused: a batch decodes for which plain rounds are faster.
        skipped: rows that joined one without a draft.
    """

    def __init__(self) -> None:
        self.accepted = self.refused = 0.0
        self.is_paused, self.skipped = False, 0

    def observe(self, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """A round judged `drafted` tokens of each row and took `accepted` of them."""
        if not any(drafted):
            return
        good, bad = verdicts(drafted, accepted)
        self.accepted = LONG_MEMORY * self.accepted + good
        self.refused = LONG_MEMORY * self.refused + bad

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to choose by."""
        return self.accepted + self.refused >= ENOUGH

    @property
    def rate(self) -> float:
        """Estimated chance that a draft token is accepted; `PRIOR` before the first."""
        return (self.accepted + WEIGHT * PRIOR) / (self.accepted + self.refused + WEIGHT)


def verdicts(drafted: Sequence[int], accepted: Sequence[int]) -> tuple[float, float]:
    """Draft tokens accepted and refused in a round, mean over rows.

    Behind the first refusal of a row nothing is judged, so a row refuses one token or none.
    """
    rows = len(drafted)
    refused = sum(good < many for many, good in zip(drafted, accepted, strict=True))
    return sum(accepted) / rows, refused / rows


class CostModel:
    """What a drafted chain costs and gives.

    With `a_i` the chance that the draft token at depth `i` is accepted where those before it are,
    `T(n)` the time of a target forward over `n` tokens and `t` that of one draft forward, `k` draft
    tokens a round give

        1 + a_1 + a_1 a_2 + ... + a_1 ... a_k  tokens  in  k * t + T(k + 1)  seconds

    (Leviathan et al. 2023, eq. 1, with all `a_i` one). Recent rounds count more than old ones;
    depths of which little was seen take the chance of all.

    Args:
        experience: the acceptance of earlier runs, which this one begins with and adds to.
        rate: what to begin with instead.
    """

    def __init__(self, experience: Acceptance | None = None, rate: float | None = None) -> None:
        self.experience = experience if experience is not None else Acceptance()
        self.costs = Costs()
        self.rows = 1  # of the last round
        self.timed = 0  # draft forwards, or chains of them
        self._drafts = SizeTimes()  # seconds of a draft forward by rows
        expected = (
            self.experience.rate if rate is None else rate
        )  # weak evidence: another text may be harder
        self._accepted, self._refused = WEIGHT * expected, WEIGHT * (1 - expected)
        self._depths: list[list[float]] = []  # at each depth: accepted, judged

    def observe_draft(self, seconds_each: float, rows: int = 1) -> None:
        """A draft forward over `rows` took `seconds_each`."""
        self.timed += 1
        self._drafts.add(rounded(rows), seconds_each)

    def observe_cost(self, done: RoundCost) -> None:
        """The time of a round is known; which may be later than what it gave."""
        self.rows = done.rows
        self.costs.add(done.rows, done.block, done.seconds)
        if done.forwards and not done.missed:  # a long catch-up says nothing about one step
            self.observe_draft(done.drafting / done.forwards, done.rows)

    def observe_verdicts(self, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """Of `drafted` tokens of each row `accepted` were what the target says, too."""
        if not any(drafted):
            return
        self.forget(MEMORY)
        good, bad = verdicts(drafted, accepted)
        self._accepted += good
        self._refused += bad
        each = 1 / len(drafted)
        for many, right in zip(drafted, accepted, strict=True):
            for depth in range(min(many, right + 1)):
                if depth == len(self._depths):
                    self._depths.append([0.0, 0.0])
                self._depths[depth][0] += each * (depth < right)
                self._depths[depth][1] += each
        self.experience.observe(drafted, accepted)

    def forget(self, share: float) -> None:
        """Let the acceptance seen so far weigh only `share` as much as before."""
        self._accepted *= share
        self._refused *= share
        self._depths = [[share * right, share * judged] for right, judged in self._depths]

    @property
    def acceptance(self) -> float:
        """Estimated chance that a draft token is accepted, by recent rounds and earlier ones.

        Earlier ones, of this run and others, count unless recent ones contradict them.
        """
        earlier, judged = self.experience, self._accepted + self._refused
        rate, weight = earlier.rate, KNOWN_WEIGHT if earlier.is_known else 0.0
        if abs(self._accepted - judged * rate) > DOUBT * math.sqrt(judged * rate * (1 - rate)):
            weight = 0.0
        return (self._accepted + weight * rate) / (judged + weight)

    def draft_seconds(self, rows: int = 1) -> float | None:
        """Time of a draft forward, or `None` before the first."""
        return self._drafts.seconds(rounded(rows)) if self.timed else None

    @property
    def is_ready(self) -> bool:
        """Whether a plain step and a draft forward have been timed."""
        return self.timed > 0 and self.costs.plain_rounds > 0

    def tokens(self, largest: int, rates: Sequence[float] | None = None) -> list[float]:
        """Expected tokens a round and row for `0 .. largest` draft tokens.

        Args:
            rates: acceptance of each row, 0 for one without a draft; `None` is one row, or several
                of which nothing is known apart. The mean of what rows give is not what their mean
                would: beside one that always accepts, another that never does takes half of it, and
                not all but the first token.
        """
        overall, depths = self.acceptance, []
        for depth in range(largest):
            right, judged = self._depths[depth] if depth < len(self._depths) else (0.0, 0.0)
            depths.append((right + DEPTH_WEIGHT * overall) / (judged + DEPTH_WEIGHT))
        if rates is None:
            return _sums([depths])
        # Deep tokens are judged where those before them were right, in the better rows.
        shape = [min(chance / overall, 1.0) for chance in depths]
        return _sums([[rate * part for part in shape] for rate in rates])

    def gains(
        self, largest: int, rows: int = 1, rates: Sequence[float] | None = None
    ) -> list[float]:
        """Speed with `0 .. largest` draft tokens a round, as multiples of plain decoding's."""
        plain, draft = self.costs.seconds(rows, 1), self.draft_seconds(rows) or 0.0
        return [
            # A block can't be faster than a plain step; where it seems so, the clock was disturbed.
            tokens * plain / (size * draft + max(plain, self.costs.seconds(rows, size + 1)))
            for size, tokens in enumerate(self.tokens(largest, rates))
        ]

    def __str__(self) -> str:
        return (
            f"acceptance {self.acceptance:.2f}, draft forward "
            f"{1e3 * (self.draft_seconds(self.rows) or 0):.1f} ms, plain step "
            f"{1e3 * self.costs.seconds(self.rows, 1):.1f} ms"
        )


def _sums(chances: list[list[float]]) -> list[float]:
    """Tokens a round for `0 .. n` draft tokens: mean over rows, by their chances at each depth."""
    expected, reached = [1.0], [1.0] * len(chances)
    for depth in range(len(chances[0])):
        reached = [have * row[depth] for have, row in zip(reached, chances, strict=True)]
        expected.append(expected[-1] + sum(reached) / len(reached))
    return expected


class DraftLength:
    """Always the same number of draft tokens; subclasses learn from what rounds cost and gave."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def takes_rows(self) -> bool:
        """Whether rows that begin may be drafted for, and so are worth the draft's prefill."""
        return True

    def choose(self, rows: Sequence[int], may_draft: Sequence[bool] | None = None) -> list[int]:
        """Draft tokens of the next round for each of `rows` (original numbers); 0 is plain.

        Args:
            may_draft: those that can be drafted for; `None` is all of them.
        """
        return [self.largest] * len(rows)

    def close(self) -> None:
        """The batch has ended."""

    def observe(
        self,
        rows: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        is_timed: bool = True,
    ) -> None:
        """Of `rows`, which go on, `drafted` tokens were judged and `accepted` of them taken.

        Args:
            is_timed: what the round took will be told to `observe_cost`.
        """

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        """A round that gave `tokens` a row took this long; on GPUs told a round late."""


class AdaptiveDraftLength(DraftLength):
    """The number with the highest expected tokens a second, plain decoding included.

    When no number beats plain decoding, rounds are plain for a while; then speculation is tried
    again (`Pauses`). In a batch, rows whose own drafts are never accepted draft nothing.

    Args:
        largest: upper limit of the draft length.
        first: draft length before anything is known.
        note: told each change of mind in one line.
        experience: the acceptance of earlier runs, and where more of it goes.
    """

    def __init__(
        self,
        largest: int = 16,
        first: int = 4,
        note: Callable[[str], None] | None = None,
        experience: Acceptance | None = None,
    ) -> None:
        super().__init__(largest)
        self.model = CostModel(experience)
        self.pauses: Pauses[int] = Pauses(self.model.costs, "num_draft_tokens", note, self._forget)
        self._first = min(first, largest)
        self._trial = min(TRIAL_TOKENS, largest)
        self._rows: dict[int, tuple[float, float]] = {}  # accepted and refused
        self._had_others = False
        self._untimed = 0  # rounds that were judged and whose time is not known yet

    def takes_rows(self) -> bool:
        known = self.model.experience
        known.skipped += known.is_paused
        return not known.is_paused or known.skipped % PROMPT_EVERY == 0

    def close(self) -> None:
        self.model.experience.is_paused = False

    def choose(self, rows: Sequence[int], may_draft: Sequence[bool] | None = None) -> list[int]:
        may = may_draft or [True] * len(rows)
        hopeless = [not can or self._is_hopeless(row) for row, can in zip(rows, may, strict=True)]
        rates = None  # of a row that has always been alone: by the depth of its drafts
        self._had_others |= len({*rows, *self._rows}) > 1
        if self._had_others:
            rates = [
                0.0 if bad and not all(hopeless) else self._rate(row)
                for row, bad in zip(rows, hopeless, strict=True)
            ]
        if any(can and row not in self._rows for row, can in zip(rows, may, strict=True)):
            self.pauses.reconsider()  # a row that has just begun may be a better one
        size = self._size(len(rows), rates) or 0
        self.model.experience.is_paused = self.pauses.is_pausing and not self._may_pay(rows)
        if all(hopeless):
            return [size] * len(rows)
        again = self.model.costs.rounds % ROW_TRIAL_EVERY == 0
        little = min(size, self._trial) if again else 0
        return [little if bad else size for bad in hopeless]

    def _size(self, rows: int, rates: Sequence[float] | None) -> int | None:
        model, is_likely = self.model, self.model.acceptance >= 1 / 2
        if not model.is_ready and model.tokens(self.largest)[-1] >= LEAST_GAIN:
            if model.costs.is_plain_due(rows) or self._untimed:
                return 0
            return self._first if is_likely else self._trial
        if not model.costs.rounds:
            return 0

        def best() -> Candidate[int]:
            gains = model.gains(self.largest, rows, rates)
            size = max(range(1, self.largest + 1), key=gains.__getitem__)
            return Candidate(size, gains[size], size, f"{size} draft tokens a round")

        if is_likely and model.timed == 1 and best().gain < LEAST_GAIN:
            return self._first  # not given up for one time, which may have been a stall

        def trial() -> tuple[int, float]:
            draft, size = model.draft_seconds(rows) or 0.0, self._trial
            return size, size * draft + model.costs.seconds(rows, 1 + size)

        return self.pauses.choose(rows, best, trial, f" ({model})")

    def _rate(self, row: int) -> float:
        """Acceptance of a row: its own recent rounds, and what is expected of one that begins."""
        known, (good, bad) = self.model.experience, self._rows.get(row, (0.0, 0.0))
        expected = known.rate if known.is_known else self.model.acceptance
        return (good + WEIGHT * expected) / (good + bad + WEIGHT)

    def _may_pay(self, rows: Sequence[int]) -> bool:
        """Whether drafting would pay with one row more, and were it for all of them."""
        if not self._had_others or not self.model.is_ready:
            return True
        rates = [self._rate(row) for row in (*rows, -1)]
        return max(self.model.gains(self.largest, len(rates), rates)[1:]) >= LEAST_GAIN

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        model = self.model
        self._untimed -= 1
        if done.missed and model.timed:
            each = model.draft_seconds(done.rows) or 0.0
            self.pauses.catch_up = max(done.drafting - done.forwards * each, 0.0) / done.missed
        model.observe_cost(done)
        self.pauses.observe(done, tokens, model.experience.is_known)

    def observe(
        self,
        rows: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        is_timed: bool = True,
    ) -> None:
        self.model.observe_verdicts(drafted, accepted)
        self._untimed += is_timed
        self._rows = {row: self._rows.get(row, (0.0, 0.0)) for row in rows}
        for row, many, right in zip(rows, drafted, accepted, strict=True):
            if many:
                good, bad = self._rows[row]
                self._rows[row] = MEMORY * good + right, MEMORY * bad + (right < many)

    def _is_hopeless(self, row: int) -> bool:
        good, bad = self._rows.get(row, (0.0, 0.0))
        return good + bad >= JUDGED and good < HOPELESS * (good + bad)

    def _forget(self) -> None:
        self.model.forget(MEMORY_OF_FAILURE)
