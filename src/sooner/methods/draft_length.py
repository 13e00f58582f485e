"""How many tokens to draft: a fixed number, or the one that measurably pays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from .sizing import Acceptance, CostModel

logger = logging.getLogger("sooner")

PAUSE, LONGEST_PAUSE = 32, 256
"""Plain rounds before speculation is tried again; doubled after each failure."""

PLAIN_ROUNDS, PLAIN_EVERY = (2, 6), 64
"""Rounds that are plain although speculation pays, to time a plain step."""

TRIAL_ROUNDS, TRIAL_TOKENS = 2, 2
"""What such a trial costs at most, if the draft is still no good."""

MEMORY_OF_FAILURE = 0.2
"""Weight that old acceptance keeps when speculation is tried again: the text may have changed."""


class DraftLength(Protocol):
    """Chooses the draft length of each round from what the rounds before it cost and gave."""

    largest: int

    def choose(self) -> int: ...

    def observe_draft(self, seconds_each: float) -> None: ...

    def observe_round(self, drafted: list[int], accepted: list[int], seconds: float) -> None: ...


class FixedDraftLength:
    """Always the same number of draft tokens."""

    def __init__(self, size: int) -> None:
        self.largest = size

    def choose(self) -> int:
        return self.largest

    def observe_draft(self, seconds_each: float) -> None:
        """A fixed length learns nothing."""

    def observe_round(self, drafted: list[int], accepted: list[int], seconds: float) -> None:
        """A fixed length learns nothing."""


class AdaptiveDraftLength:
    """The number with the highest expected tokens a second, plain decoding included.

    When no number beats plain decoding, rounds are plain for a while; then speculation is tried
    again.

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
        self.largest = largest
        self.model = CostModel(experience)
        self._first = min(first, largest)
        self._note = note or logger.info
        self._plain_left = 0
        self._pause = PAUSE
        self._trial = 0
        self._chosen = -1

    def choose(self) -> int:
        """Draft tokens of the next round; 0 is plain decoding."""
        if self._plain_left > 0:
            self._plain_left -= 1
            return 0
        if self._is_plain_due():
            return 0
        if not self.model.is_ready:
            return self._first
        if self._trial > 0:
            self._trial -= 1
            return min(TRIAL_TOKENS, self.largest)
        best = self.model.best(self.largest)
        gain = self.model.gain(best)
        if gain < 1.0:
            return self._give_up(gain)
        self._say(best, gain)
        return best

    def _is_plain_due(self) -> bool:
        """Now and then a plain round tells what speculation has to beat: twice early, so that one
        stalled measurement does not decide, then seldom."""
        rounds = self.model.rounds
        return rounds in PLAIN_ROUNDS or rounds % PLAIN_EVERY == PLAIN_EVERY - 1

    def observe_draft(self, seconds_each: float) -> None:
        """One draft forward took `seconds_each`."""
        self.model.observe_draft(seconds_each)

    def observe_round(self, drafted: list[int], accepted: list[int], seconds: float) -> None:
        """A target forward over the largest of `drafted`, plus the root, took `seconds`."""
        self.model.observe_round(drafted, accepted, seconds)

    def _give_up(self, gain: float) -> int:
        self._note(
            f"num_draft_tokens auto: plain decoding for {self._pause} rounds, since the best "
            f"number would run at {gain:.2f}x plain ({self.model})"
        )
        self._plain_left = self._pause - 1
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._trial = TRIAL_ROUNDS
        self.model.forget(MEMORY_OF_FAILURE)
        self._chosen = 0
        return 0

    def _say(self, best: int, gain: float) -> None:
        if self._chosen == 0:
            self._pause = PAUSE
        if abs(best - self._chosen) > max(1, self._chosen // 2):
            self._note(
                f"num_draft_tokens auto: {best} draft tokens a round, expected {gain:.2f}x plain "
                f"({self.model})"
            )
            self._chosen = best
