"""How many tokens of a chain to draft: a fixed number, or the one that measurably pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from .costs import LOOKUP, WEIGHT, Acceptance, Costs, RoundCost, SizeTimes, rounded, verdicts
from .pauses import MIN_GAIN, Candidate, Pauses

MEMORY = 0.85
"""Weight that the acceptance seen so far keeps from round to round."""
KNOWN_WEIGHT = 10.0
"""Draft tokens' worth of the acceptance that was seen so far, once it is known: recent rounds are
few, and scatter so much that drafting would end where it pays."""
DOUBT = 2.5
"""Standard deviations by which recent rounds lie off what was known when the text has changed."""
DEPTH_WEIGHT = 6.0
"""Draft tokens' worth of the belief that acceptance is the same at every depth."""

TRIAL_TOKENS = 2
"""Draft tokens of a trial, and of the first drafts of a pair that is known to be bad."""

MEMORY_OF_FAILURE = 0.2
"""Weight that old acceptance keeps when speculation is tried again: the text may have changed."""

HOPELESS, KNOWN_FROM = 0.1, 4.0
"""Acceptance below which a row of a batch drafts no more, from so many verified tokens on."""

ROW_TRIAL_EVERY = 16
"""Rounds after which such a row drafts a little once more; the batch's forward has room for it."""


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
        self._depths: list[list[float]] = []  # at each depth: accepted, verified

    def observe_draft(self, seconds_each: float, rows: int = 1) -> None:
        """A draft forward over `rows` took `seconds_each`."""
        self.timed += 1
        self._drafts.add(rounded(rows), seconds_each)

    def observe_cost(self, done: RoundCost) -> None:
        """The time of a round is known; which may be later than what it gave."""
        self.rows = done.rows
        self.costs.add(done.rows, done.block, done.seconds)
        if done.forwards and not done.missed:  # a long catch-up says nothing about one step
            self.observe_draft(done.drafting / done.forwards, done.drafting_rows)

    def observe_verdicts(
        self,
        drafted: Sequence[int],
        accepted: Sequence[int],
        known: Sequence[Acceptance] | None = None,
    ) -> None:
        """Records that `accepted` of `drafted` tokens of each row were what the target says, too.

        Args:
            known: acceptance of the kind of each row; `None` is `experience`.
        """
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
        if known is None:
            self.experience.observe(drafted, accepted)
            return
        for kind in {id(entry): entry for entry in known}.values():
            its = [row for row, entry in enumerate(known) if entry is kind]
            kind.observe([drafted[row] for row in its], [accepted[row] for row in its])

    def forget(self, share: float) -> None:
        """Let the acceptance seen so far weigh only `share` as much as before."""
        self._accepted *= share
        self._refused *= share
        self._depths = [[share * right, share * verified] for right, verified in self._depths]

    @property
    def acceptance(self) -> float:
        """Estimated chance that a draft token is accepted, by recent rounds and earlier ones.

        Earlier ones, of this run and others, count unless recent ones contradict them.
        """
        earlier, verified = self.experience, self._accepted + self._refused
        rate, weight = earlier.rate, KNOWN_WEIGHT if earlier.is_known else 0.0
        if abs(self._accepted - verified * rate) > DOUBT * math.sqrt(verified * rate * (1 - rate)):
            weight = 0.0
        return (self._accepted + weight * rate) / (verified + weight)

    def draft_seconds(self, rows: int = 1) -> float | None:
        """Time of a draft forward, or `None` before the first."""
        return self._drafts.seconds(rounded(rows)) if self.timed else None

    @property
    def is_ready(self) -> bool:
        """Whether a plain step and a draft forward have been timed."""
        return self.timed > 0 and self.costs.plain_rounds > 0

    def tokens(self, largest: int, rates: Sequence[float] | None = None) -> list[float]:
        """Returns expected tokens a round and row for `0 .. largest` draft tokens.

        Args:
            rates: acceptance of each row, 0 for one without a draft; `None` is one row, or several
                of which nothing is known apart. The mean of what rows give is not what their mean
                would: beside one that always accepts, another that never does takes half of it, and
                not all but the first token.
        """
        return _sums(self.chances(largest, rates))

    def chances(self, largest: int, rates: Sequence[float] | None) -> list[list[float]]:
        """That the draft token of a row at a depth is accepted where those before it are, `[rows,
        largest]`; of one row if `rates` is `None`."""
        overall, depths = self.acceptance, []
        for depth in range(largest):
            right, verified = self._depths[depth] if depth < len(self._depths) else (0.0, 0.0)
            depths.append((right + DEPTH_WEIGHT * overall) / (verified + DEPTH_WEIGHT))
        if rates is None:
            return [depths]
        # Deep tokens are verified where those before them were right, in the better rows.
        shape = [min(chance / overall, 1.0) for chance in depths]
        return [[rate * part for part in shape] for rate in rates]

    def gains(
        self,
        largest: int,
        rows: int = 1,
        rates: Sequence[float] | None = None,
        members: int | None = None,
    ) -> list[float]:
        """Returns speed with `0 .. largest` draft tokens a round, as multiples of plain decoding's.

        Args:
            members: rows of a draft forward; `None` is all of them.
        """
        members = rows if members is None else members
        draft = (self.draft_seconds(members) or 0.0) if members else 0.0
        plain = self.costs.seconds(rows, 1)
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
    """Returns tokens a round for `0 .. n` draft tokens: mean over rows, by their chances at each
    depth.
    """
    expected, reached = [1.0], [1.0] * len(chances)
    for depth in range(len(chances[0])):
        reached = [have * row[depth] for have, row in zip(reached, chances, strict=True)]
        expected.append(expected[-1] + sum(reached) / len(reached))
    return expected


class DraftLength:
    """Always the same number of draft tokens; subclasses learn from what rounds cost and gave."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def takes_rows(self, prompt: int, limit: int | None, left: Sequence[int] | None = None) -> bool:
        """Returns whether rows that begin should be drafted for, and so are worth the draft's
        prefill.

        Args:
            prompt: tokens of a row's prompt, and `limit`: new tokens that it may say.
            left: new tokens that each will say, as of `choose`.
        """
        return True

    def prefilled(self, prompt: int, seconds: float, steps: int) -> None:
        """The draft's prefill of so many tokens took so long, in so many steps of the engine."""

    def choose(
        self,
        rows: Sequence[int],
        may_draft: Sequence[bool] | None = None,
        began: Sequence[DraftLength] | None = None,
        available: Sequence[bool] | None = None,
        left: Sequence[int] | None = None,
    ) -> list[int]:
        """Draft tokens of the next round for each of `rows` (original numbers); 0 is plain.

        Args:
            may_draft: those that can be drafted for; `None` is all of them.
            began: what sized the drafts of each when it was prefilled; `None` is this one.
            available: those that have a draft without a forward of the draft model.
            left: tokens that each has yet to say, if that is known: unless requests come and go
                (`RequestLoad.tell`), what counts is then when the last of them ends.
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
        """Records that `accepted` of `drafted` tokens of `rows`, which go on, were accepted.

        Args:
            is_timed: what the round took will be told to `observe_cost`.
        """

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        """A round that gave `tokens` a row took this long; on GPUs told a round late."""


@dataclass
class _Row:
    """A row that decodes.

    Attributes:
        known: acceptance of its kind, and of where its drafts are from.
        kind: of its prompt.
        is_drafted: a model drafts for it.
        accepted, refused: of its own recent draft tokens.
        said: tokens, and `last`: those of the last round.
        rounds: that it took part in.
    """

    known: Acceptance
    kind: Hashable = None
    is_drafted: bool = True
    accepted: float = 0.0
    refused: float = 0.0
    output: int = 1
    last: int = 1
    rounds: int = 1

    @staticmethod
    def beginning(known: Acceptance, is_drafted: bool) -> _Row:
        """Returns a row of a kind; what is found in its text is accepted as often as elsewhere in
        texts.
        """
        state = known if is_drafted else known.of((LOOKUP, known.kind))
        return _Row(state, known.kind, is_drafted)

    @property
    def verified(self) -> float:
        return self.accepted + self.refused

    @property
    def is_hopeless(self) -> bool:
        return self.verified >= KNOWN_FROM and self.accepted < HOPELESS * self.verified

    def observe(self, drafted: int, accepted: int) -> None:
        """A round verified `drafted` tokens and took `accepted` of them."""
        self.last = 1 + accepted
        self.output += self.last
        self.rounds += 1
        if drafted:
            self.accepted = MEMORY * self.accepted + accepted
            self.refused = MEMORY * self.refused + (accepted < drafted)


def _hopeless(rows: Sequence[_Row], has_draft: Sequence[bool]) -> list[bool]:
    """Returns rows that draft nothing while others do."""
    return [not can or row.is_hopeless for row, can in zip(rows, has_draft, strict=True)]


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
        from .load import load_of  # others take the costs alone

        super().__init__(largest)
        self.model = CostModel(experience)
        self.load = load_of(self.model.experience)
        self.pauses: Pauses[int] = Pauses(self.model.costs, "num_draft_tokens", note, self._forget)
        self._first = min(first, largest)
        self._trial = min(TRIAL_TOKENS, largest)
        self._rows: dict[int, _Row] = {}
        self._had_peers = False
        self._share = 1.0  # of the gain of what was chosen last, that a closed batch keeps
        self._untimed = 0  # rounds that were verified and whose time is not known yet

    def takes_rows(self, prompt: int, limit: int | None, left: Sequence[int] | None = None) -> bool:
        known = self.model.experience
        self.load.begin(known.kind)
        if left is not None and self._is_closed(left):
            return self.load.pays_together(known.kind, known.rate, prompt, left, self.largest)
        return self.load.pays(known.kind, known.rates, prompt, limit, self.largest)

    def prefilled(self, prompt: int, seconds: float, steps: int) -> None:
        self.load.prefilled(self.model.experience.kind, prompt, seconds, steps)

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
    ) -> list[int]:
        may = may_draft or [True] * len(rows)
        self._had_peers |= len({*rows, *self._rows}) > 1
        for row, sizing, can in zip(rows, began or [self] * len(rows), may, strict=True):
            if row not in self._rows:
                assert isinstance(sizing, AdaptiveDraftLength)
                self._rows[row] = _Row.beginning(sizing.model.experience, can)
                if can:
                    self.pauses.reconsider()  # it may be a better one
        has = [flag or other for flag, other in zip(may, available or may, strict=True)]
        if not any(has):
            return [0] * len(rows)
        states = [self._rows[row] for row in rows]
        members = sum(may)

        def gains() -> tuple[list[float], list[float]]:
            rates = None  # of a row that has always been alone: by the depth of its drafts
            if self._had_peers:
                rates = self._rates(states, has)
            result = self.model.gains(self.largest, len(rows), rates, members)
            if rates is None or left is None or not self._is_closed(left):
                return result, [1.0] * len(result)
            return result, self._shares(left, sum(rates) / len(rates))

        size = self._size(len(rows), members, gains) or 0
        if not size:
            return [0] * len(rows)
        hopeless = _hopeless(states, has)
        if all(hopeless):
            return [size] * len(rows)
        again = self.model.costs.rounds % ROW_TRIAL_EVERY == 0
        little = min(size, self._trial) if again else 0
        return [little if bad else size for bad in hopeless]

    def _rates(self, rows: Sequence[_Row], has_draft: Sequence[bool]) -> list[float]:
        """Returns acceptance of each row, 0 of those that draft nothing."""
        hopeless = _hopeless(rows, has_draft)
        if all(hopeless):
            return [self._rate(row) for row in rows]
        return [0.0 if bad else self._rate(row) for row, bad in zip(rows, hopeless, strict=True)]

    def _is_closed(self, left: Sequence[int]) -> bool:
        """Returns whether these rows end together, since no requests come and go."""
        return len(left) > 1 and not self.load.rows

    def _shares(self, left: Sequence[int], rate: float) -> list[float]:
        """Returns what the last row of a closed batch leaves of the gain of `0 .. largest` draft
        tokens.

        Args:
            rate: acceptance of its rows, which are taken to be alike.
        """
        from .closed import rounds_to_the_end  # a single row needs none of it

        (chances,) = self.model.chances(self.largest, [rate])
        lasts = rounds_to_the_end(left, chances, self.load.of_half(len(left)))
        each = _sums([chances])
        return [lasts[0] / last / tokens for last, tokens in zip(lasts, each, strict=True)]

    def _size(
        self,
        rows: int,
        members: int,
        gains_of_sizes: Callable[[], tuple[list[float], list[float]]],
    ) -> int | None:
        """Returns how many tokens to draft.

        Args:
            gains_of_sizes: over plain decoding for the mean row, by number of draft tokens, and
                what of each a closed batch keeps; asked only where a number is chosen.
        """
        model, is_likely = self.model, self.model.acceptance >= 1 / 2
        is_ready = model.is_ready or (model.costs.plain_rounds > 0 and not members)
        if not is_ready and model.tokens(self.largest)[-1] >= MIN_GAIN:
            if model.costs.is_plain_due(rows) or self._untimed:
                return 0
            return self._first if is_likely else self._trial
        if not model.costs.rounds:
            return 0

        def best() -> Candidate[int]:
            of_mean_row, shares = gains_of_sizes()
            gains = [gain * share for gain, share in zip(of_mean_row, shares, strict=True)]
            size = max(range(1, self.largest + 1), key=gains.__getitem__)
            self._share = shares[size]
            return Candidate(size, gains[size], size, f"{size} draft tokens a round")

        if is_likely and model.timed == 1 and best().gain < MIN_GAIN:
            return self._first  # not given up for one time, which may have been a stall

        def trial() -> tuple[int, float]:
            draft, size = model.draft_seconds(members) if members else 0.0, self._trial
            if draft is None:  # never timed, since a few rounds told that it is wrong
                draft = model.costs.seconds(rows, 1)
            return size, size * draft + model.costs.seconds(rows, 1 + size)

        return self.pauses.choose(rows, best, trial, f" ({model})")

    def _rate(self, row: _Row) -> float:
        """Returns acceptance of a row: its own recent rounds, and what is expected of one that
        begins.
        """
        expected = row.known.rate if row.known.is_known else self.model.acceptance
        return (row.accepted + WEIGHT * expected) / (row.verified + WEIGHT)

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        model = self.model
        self._untimed -= 1
        if done.missed and model.timed:
            each = model.draft_seconds(done.drafting_rows) or 0.0
            self.pauses.catch_up = max(done.drafting - done.forwards * each, 0.0) / done.missed
        model.observe_cost(done)
        self.pauses.observe(done, tokens * self._share, model.experience.is_known)
        self.load.observe(done)

    def observe(
        self,
        rows: Sequence[int],
        drafted: Sequence[int],
        accepted: Sequence[int],
        is_timed: bool = True,
    ) -> None:
        self._untimed += is_timed
        for row in self._rows.keys() - set(rows):
            self._end(row)
        # Rows that have joined since took no part in the round, and their kind is not known yet.
        entries = [
            entry
            for entry in zip(rows, drafted, accepted, strict=True)
            if entry[0] in self._rows or entry[1]
        ]
        for row, many, right in entries:
            self._rows.setdefault(row, _Row.beginning(self.model.experience, True))
            self._rows[row].observe(many, right)
        known = [self._rows[row].known for row, _, _ in entries]
        self.model.observe_verdicts(
            [entry[1] for entry in entries], [entry[2] for entry in entries], known
        )

    def _end(self, row: int) -> None:
        """A row has gone; what its last round gave is not told."""
        entry = self._rows.pop(row)
        self.load.end(
            entry.kind, entry.output + entry.last, None if entry.is_drafted else entry.rounds
        )

    def _forget(self) -> None:
        self.model.forget(MEMORY_OF_FAILURE)
