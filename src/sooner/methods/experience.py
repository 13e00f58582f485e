"""What is learnt from run to run: acceptance by kind of prompt, and what requests are like."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean

import numpy as np

from .controller import Controller, StepTimes

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
LOOKUP = "lookup"
"""In the kind of drafts that are looked up in a row's own text: `(LOOKUP, kind of its prompt)`."""


@dataclass
class Requests:
    """How many requests there are, and the controller of all their batches.

    Attributes:
        rows, waiting, max_rows: requests that decode or are prefilled, that wait, and most rows.
    """

    rows: int = 0
    waiting: int = 0
    max_rows: int = 1
    controller: Controller[int] = field(default_factory=lambda: Controller("num_draft_tokens"))

    @property
    def times(self) -> StepTimes:
        return self.controller.times

    def expect(self, rows: int, waiting: int, max_rows: int) -> None:
        """Records the counts as a step of the engine begins."""
        self.rows, self.waiting, self.max_rows = rows, waiting, max_rows

    def of_half(self, rows: int) -> float:
        """Returns time of a round of half of `rows`, over that of all."""
        whole = self.times.round(rows, 1)
        return self.times.round((rows + 1) // 2, 1) / whole if whole else 1.0


class Acceptance:
    """How often draft tokens are accepted, kept from run to run if it is handed on.

    For one pair of models and one way to draft and sample.

    Args:
        whole: of all kinds of prompts, where this is of one `kind`.

    Attributes:
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

    @property
    def _model_drafts(self) -> Acceptance | None:
        """Acceptance of all kinds, unless drafts are looked up in texts: these say nothing about a
        model's drafts, nor those about them."""
        is_lookup = isinstance(self.kind, tuple) and self.kind[:1] == (LOOKUP,)
        return None if is_lookup else self.whole

    def observe(self, drafted: int, accepted: int) -> None:
        """Records that a round verified `drafted` tokens of a row and accepted `accepted`."""
        if not drafted:
            return
        if (whole := self._model_drafts) is not None:
            whole.observe(drafted, accepted)
        self.accepted = LONG_MEMORY * self.accepted + accepted
        self.refused = LONG_MEMORY * self.refused + (accepted < drafted)

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to choose by."""
        return self.accepted + self.refused >= ENOUGH

    @property
    def rate(self) -> float:
        """Estimated chance that a draft token is accepted; `PRIOR` before the first."""
        expected = PRIOR if (whole := self._model_drafts) is None else whole.rate
        return (self.accepted + WEIGHT * expected) / (self.accepted + self.refused + WEIGHT)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """Records that a draft's prefill of so many tokens took so long."""
        self.prefill += (seconds / tokens - self.prefill) * (0.2 if self.prefill else 1.0)

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
        now, times = self.requests, self.requests.times
        if not (self.prefill and self.ended and times.drafts.count):
            return True
        rows = max(min(now.rows + now.waiting, now.max_rows), 1)
        chances, sizes = np.full(largest, self.rate), np.arange(1, largest + 1)
        tokens = chain_tokens(chances)
        if left is not None:
            rows = len(left)
            rounds = rounds_to_the_end(left, chances, now.of_half(rows))
            tokens = rounds[0] / rounds
        plain, draft = times.round(rows, 1), times.draft(rows)
        steps = sizes * draft + times.round_line(rows, 1 + sizes, rows > 1)
        seconds = float((steps / tokens[1:]).min())
        length = min(self.output / self.ended, limit or math.inf)
        saved = length * (plain * (1 - MIN_SAVED) - seconds) / rows
        is_worth = saved > self.prefill * prompt or self.left_out >= EXPLORE_EVERY
        self.left_out = 0 if is_worth else self.left_out + 1
        return is_worth


def chain_tokens(chances: np.ndarray, rates: Sequence[float] | None = None) -> np.ndarray:
    """Returns expected tokens of a round and row for `0 .. n` draft tokens, `[1 + n]`.

    Args:
        chances: at each of `n` depths.
        rates: acceptance of each row, over which the shape of `chances` lies; `None` is one row.
            The mean of what rows give is not what their mean would.
    """
    if rates is None:
        reached = chances.cumprod()
    else:  # deep tokens are verified where those before them were right, in the better rows
        shape = np.minimum(chances / max(chances[0], 1e-9), 1.0)
        reached = np.outer(rates, shape).cumprod(1).mean(0)
    return 1 + _sums(reached)


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
