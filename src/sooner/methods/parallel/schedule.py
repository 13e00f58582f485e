"""How many tokens of a draft beside the target are verified next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..controller import Candidates, Controller, RoundCost, StepTimes
from ..draft_length import FIRST, ChainAcceptance

SWEEPS, BISECTIONS = 12, 14
"""Value iterations for each speed that is tried, as more wholly accepted rounds in a row are rare;
and halvings of the interval of speeds, from plain decoding's to the best chain's."""
REPLAN = 8
"""Rounds between two plans."""
CONTENTION = 1.02
"""What a worker costs the target's rounds by its use of memory, which no forward's time tells."""
LOOK_EVERY = 4
"""Plain rounds of which one lets a resting worker draft a token, which is verified by the way."""
MEASURED = 4
"""Rounds that are timed before the window of `PaperSchedule` is fixed."""


class AutoSchedule:
    """The best number of tokens to verify where some are drafted already, or none.

    Where that gains nothing, rounds are plain and the worker rests, but for a token now and then.

    Args:
        acceptance: of drafts, learnt meanwhile.
        largest: most draft tokens of a round.

    Attributes:
        controller: decides between the plan and plain rounds, by the times of both.
        pays: whether the last plan gains.
    """

    def __init__(self, acceptance: ChainAcceptance, largest: int) -> None:
        self.acceptance, self.largest = acceptance, largest
        self.controller: Controller[int] = Controller("num_draft_tokens")
        self.pays = True
        self._sizes: list[int] = []  # for each number of tokens that are there
        self._speed, self._age, self._rows, self._resting = 0.0, 0, 0, 0

    @property
    def times(self) -> StepTimes:
        """Seconds of rounds and of draft forwards."""
        return self.controller.times

    def sizes(self, have: Sequence[int], stands: Sequence[bool]) -> list[int]:
        """Returns draft tokens to verify of each row, the same of all.

        Args:
            have: tokens of each row that are drafted already.
            stands: whether the draft of each row stood when its last chain was verified.
        """
        controller, times, rows = self.controller, self.times, len(have)
        typical = round(sum(have) / rows)
        self._age += 1
        if times.plain_rounds and (self._age >= REPLAN or rows != self._rows):
            self._age, self._rows = 0, rows
            forwards = [times.round(rows, 1 + size) for size in range(self.largest + 1)]
            self._sizes, self._speed = best_policy(self.acceptance.rate, times.draft(1), forwards)
        size = self._sizes[min(typical, self.largest)] if self._sizes else 0
        if not times.drafts.count:
            size = min(max(FIRST, typical), self.largest)
        tokens = self._speed * times.round(rows, 1) / CONTENTION
        controller.reconsider()  # plain rounds, too, tell what drafts are worth
        candidates = Candidates([size], np.array([1]), np.array([tokens]))
        best = controller.choose(rows, lambda: candidates, may_pause=False)
        if times.plain_rounds:
            self.pays = not times.drafts.count or tokens > 1.0
        return [best or 0] * rows

    def ahead(self) -> int:
        """Returns tokens that the worker may be ahead until the next round."""
        if self.pays:
            self._resting = 0
            return 2 * self.largest
        self._resting += 1
        return int(self._resting % LOOK_EVERY == 0)

    def observe(self, done: RoundCost) -> None:
        """Records that a round was timed."""
        self.controller.observe(done, is_counted=False)


class PaperSchedule:
    """Chooses as the paper's pipeline does (Kong et al. 2025, algorithm 1), whatever it gains.

    A row is in *post-verify* if its last chain was accepted whole and the worker's tokens behind it
    still stand: the target then verifies a window of `gamma` tokens. Otherwise it is in
    *pre-verify*: the target verifies the first token of the new draft alone.

    Args:
        window: `gamma`; `None` is `T_p / T_q`, what a target forward takes in draft forwards (eq.
            6), by the first rounds that are timed.
        largest: most draft tokens of a round.
    """

    def __init__(self, window: int | None, largest: int) -> None:
        self.times, self.largest = StepTimes(), largest
        self.gamma = window

    def sizes(self, have: Sequence[int], stands: Sequence[bool]) -> list[int]:
        """Returns draft tokens to verify of each row, as `AutoSchedule.sizes`."""
        gamma = self.gamma
        if gamma is None:
            gamma, times = min(FIRST, self.largest), self.times
            if times.rounds.count and times.drafts.count:
                ratio = times.round(len(have), 2) / times.draft(1)
                gamma = min(max(round(ratio), 1), self.largest)
                if times.rounds.count >= MEASURED:
                    self.gamma = gamma
        return [gamma if is_post else 1 for is_post in stands]

    def ahead(self) -> int:
        """Returns tokens that the worker may be ahead: this window, and the next."""
        return 2 * self.largest

    def observe(self, done: RoundCost) -> None:
        """Records that a round was timed."""
        self.times.add(done)


def best_policy(
    acceptance: float, draft: float, forwards: Sequence[float]
) -> tuple[list[int], float]:
    """Returns how many to verify for each number `0 .. n` of tokens drafted already, and the
    tokens a second that this gives. Each rejection begins anew with nothing drafted.

    Args:
        acceptance: chance that a draft token is accepted.
        draft: seconds of a draft forward.
        forwards: seconds of the target's over `0 .. n` draft tokens.
    """
    largest, a, t = len(forwards) - 1, acceptance, max(draft, 1e-9)
    sizes, forward = np.arange(largest + 1), np.array(forwards)  # [sizes] each
    tokens = (1 - a ** (sizes + 1)) / (1 - a)
    whole = a ** (sizes + 1)
    waiting = np.maximum(sizes[None, :] - sizes[:, None], 0) * t  # [have, sizes]
    seconds = waiting + forward[None, :]
    left = np.maximum(sizes[:, None] - sizes[None, :], 0)
    drafted = np.floor(forward[None, :] / t).astype(int)
    following = np.clip(left + drafted - 1, 0, largest)  # the token behind them is one
    slow, fast = 1.0 / forward[0], float((tokens / forward).max())
    values = np.zeros((largest + 1, largest + 1))
    for _ in range(BISECTIONS):
        speed = (slow + fast) / 2
        value = np.zeros(largest + 1)
        for _ in range(SWEEPS):
            values = tokens[None] - speed * seconds + whole[None] * value[following]
            value = values.max(1)
        if value[0] > 0:  # better than this speed can be had
            slow = speed
        else:
            fast = speed
    return [int(size) for size in values.argmax(1)], slow
