"""How many draft tokens a round of parallel decoding verifies: what pays most, or the paper's."""

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
    """The number of draft tokens, `largest` at most, that pays most where some are drafted already.

    Where none pays, rounds are plain and the worker rests, but for a token now and then.
    """

    def __init__(self, acceptance: ChainAcceptance, largest: int) -> None:
        self.acceptance, self.largest = acceptance, largest
        self.controller: Controller[int] = Controller("num_draft_tokens")
        self.times = self.controller.times
        self._pays = True  # the last plan gains
        self._sizes = [0] * (1 + largest)  # for each number of tokens that are there
        self._speed, self._age, self._rows, self._resting = 0.0, 0, 0, 0

    def sizes(self, have: Sequence[int], stands: Sequence[bool]) -> list[int]:
        """Returns draft tokens to verify of each row, the same of all.

        Args:
            have: tokens of each row that are drafted already.
            stands: whether the draft of each row stood when its last chain was verified.
        """
        times, rows = self.times, len(have)
        typical = min(round(sum(have) / rows), self.largest)
        self._age += 1
        if times.plain_rounds and (self._age >= REPLAN or rows != self._rows):
            self._age, self._rows = 0, rows
            forwards = [times.round(rows, 1 + size) for size in range(self.largest + 1)]
            self._sizes, self._speed = best_policy(self.acceptance.rate, times.draft(1), forwards)
        size = self._sizes[typical]
        if not times.drafts.count:
            size = min(max(FIRST, typical), self.largest)
        tokens = self._speed * times.round(rows, 1) / CONTENTION
        self.controller.reconsider()  # plain rounds, too, tell what drafts are worth
        plan = Candidates([size], np.array([1]), np.array([tokens]), fall=self.acceptance.fall)
        best = self.controller.choose(rows, lambda: plan, may_pause=False)
        if times.plain_rounds:
            self._pays = not times.drafts.count or tokens > 1.0
        return [best or 0] * rows

    def ahead(self) -> int:
        """Returns tokens that the worker may be ahead until the next round."""
        if self._pays:
            self._resting = 0
            return 2 * self.largest
        self._resting += 1
        return int(self._resting % LOOK_EVERY == 0)

    def observe(self, done: RoundCost) -> None:
        """Records that a round was timed."""
        self.controller.observe(done, is_counted=False)


class PaperSchedule:
    """Chooses as the paper's pipeline does (Kong et al. 2025, algorithm 1), whatever it gains: a
    window of `gamma` tokens in *post-verify*, one token in *pre-verify*.

    Args:
        gamma: the window; `None` is `T_p / T_q`, what a target forward takes in draft forwards (eq.
            6), by the first rounds that are timed.
        largest: most draft tokens of a round.
    """

    def __init__(self, gamma: int | None, largest: int) -> None:
        self.times, self.gamma, self.largest = StepTimes(), gamma, largest

    def sizes(self, have: Sequence[int], stands: Sequence[bool]) -> list[int]:
        """Returns draft tokens to verify of each row, as `AutoSchedule.sizes`."""
        gamma, times = self.gamma, self.times
        if gamma is None:
            gamma = min(FIRST, self.largest)
            if times.rounds.count and times.drafts.count:
                ratio = times.round(len(have), 2) / times.draft(1)
                gamma = min(max(round(ratio), 1), self.largest)
            if times.rounds.count >= MEASURED and times.drafts.count:
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
    have = sizes[:, None]  # of [have, sizes]
    tokens, whole = (1 - a ** (sizes + 1)) / (1 - a), a ** (sizes + 1)
    seconds = np.maximum(sizes - have, 0) * t + forward
    drafted = np.maximum(have - sizes, 0) + np.floor(forward / t).astype(int)
    following = np.clip(drafted - 1, 0, largest)  # the token behind them is one
    slow, fast = 1.0 / forward[0], float((tokens / forward).max())
    for _ in range(BISECTIONS):
        speed, value = (slow + fast) / 2, np.zeros(largest + 1)
        for _ in range(SWEEPS):
            values = tokens - speed * seconds + whole * value[following]
            value = values.max(1)
        if value[0] > 0:  # better than this speed can be had
            slow = speed
        else:
            fast = speed
    return [int(size) for size in values.argmax(1)], slow
