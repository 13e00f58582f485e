"""What theory expects of each method, from measured forwards and the script.

A method's speed-up over plain decoding is that of the forwards alone: every row of every text walks
along its own stretch of the script, a round costs what its forwards cost with the rows that are
left, as they were measured on the same decoders, and nothing is charged for the host's work between
them. A batch is closed: its rows begin together, nobody takes the place of one that has ended, so
it lasts as long as its slowest row.

Chains have as many tokens as are right in a row, at most the draft's (Leviathan et al. 2023, eq. 1
is the mean of it), and the target's own. `parallel` has ParallelVLM's lock-step rounds
(`theory.parallel`) at one row. What other methods' forwards allow is the harness's
`theory_speedup`, from the rounds that came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ...theory import Curve, StepCosts, parallel
from .script import Script
from .settings import ReplaySettings
from .steps import ForwardTimes

Cost = Callable[[ForwardTimes], float]
"""Seconds of forwards."""


@dataclass(frozen=True)
class Expectation:
    """What theory expects of an arm at a point.

    Attributes:
        speedup: over plain decoding.
        tokens: a round, the target's own included.
        draft_tokens: of a round, where the arm has a fixed number of them or theory the best.
    """

    speedup: float
    tokens: float
    draft_tokens: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "expected_speedup": self.speedup,
            "expected_tokens_a_round": self.tokens,
            "expected_draft_tokens": self.draft_tokens,
        }


class Theory:
    """The theory of one point: a script, and what forwards cost in batches of so many rows.

    Args:
        script: where drafts are right.
        times: of forwards, by rows; those of `rows`, and of fewer for the end of a batch.
        settings: lengths and windows.
        rows: of the batch.
    """

    def __init__(
        self, script: Script, times: Mapping[int, ForwardTimes], settings: ReplaySettings, rows: int
    ) -> None:
        self.script, self.settings, self.rows = script, settings, rows
        self.times, self.by_rows = times[rows], times

    def of(self, method: str) -> Expectation | None:
        """Return what is expected of a method; `None` where theory has nothing to say."""
        settings = self.settings
        if method == "plain":
            return Expectation(1.0, 1.0, 0)
        if method == "speculative":
            return self.chain(settings.num_draft_tokens)
        if method in ("speculative-best", "speculative-auto"):
            return self.best_chain(settings.max_draft_tokens, may_rest=method != "speculative-best")
        if method == "hsd":  # its drafts were made beforehand
            return self.best_chain(settings.hsd_nodes, may_rest=True, draft=lambda times: 0.0)
        if method == "parallel" and self.rows == 1:
            return self.parallel(settings.max_draft_tokens)
        return None

    def chain(self, length: int, draft: Cost = lambda times: times.draft(1)) -> Expectation:
        """Rounds of `length` draft forwards, of `draft` seconds each, and a verification."""
        right, new_tokens = self.script.agreement, self.script.segment - 1
        seconds, rounds, inputs = 0.0, list[int](), self.settings.inputs(self.rows)
        for text in range(inputs):
            walks = []
            for segment in self.script.segments_of(text, self.rows):
                # Behind the token that the prefill gives.
                place, end = segment * self.script.segment + 1, (segment + 1) * self.script.segment
                walks.append(0)
                while place < end:
                    walks[-1] += 1
                    place += 1 + min(right.run_from(place), length)
            rounds += walks
            for number in range(max(walks)):
                left = sum(number < count for count in walks)
                seconds += self._seconds(
                    lambda each: length * draft(each) + each.target(1 + length), left
                )
        speedup = inputs * new_tokens * self.times.plain / seconds
        return Expectation(speedup, new_tokens / fmean(rounds), length)

    def best_chain(self, maximum: int, may_rest: bool, **draft: Cost) -> Expectation:
        """The fastest of the lengths up to `maximum`.

        Args:
            may_rest: it may be plain decoding, too.
        """
        lengths = range(0 if may_rest else 1, maximum + 1)
        return max((self.chain(item, **draft) for item in lengths), key=lambda item: item.speedup)

    def parallel(self, maximum: int) -> Expectation:
        """Lock-step rounds at the best window, each as long as a verification or its drafting."""
        costs = StepCosts(self.times.target, self.times.draft(1))

        def at(length: int) -> Expectation:
            ran = parallel(costs, self.script.agreement, length, self.script.vocab)
            return Expectation(ran.speedup, ran.mean_acceptance_length, length)

        return max((at(item) for item in range(1, maximum + 1)), key=lambda item: item.speedup)

    def _seconds(self, cost: Cost, rows: int) -> float:
        """Return the seconds of forwards over some rows, linear between numbers of rows that
        were measured.
        """
        return Curve.of({each: cost(times) for each, times in self.by_rows.items()})(rows)
