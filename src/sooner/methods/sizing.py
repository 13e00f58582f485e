"""What speculation costs and gives, measured as decoding runs."""

from __future__ import annotations

from collections import defaultdict, deque

MEMORY = 0.85
"""Weight that the acceptance seen so far keeps from round to round."""
LONG_MEMORY = 0.995
"""The same for what is kept from run to run: some hundred rounds count."""
PRIOR, WEIGHT = 2 / 3, 3.0
"""Acceptance that is expected before anything is known, and draft tokens' worth of that belief."""
ENOUGH = 12.0
"""Judged draft tokens from which on acceptance counts as known."""


class Acceptance:
    """How often draft tokens are accepted, kept from run to run if it is handed on.

    For one pair of models and one way to draft and sample. Times are not kept: they follow the
    prompt's length and the batch, and a few rounds measure them anew.

    Attributes:
        accepted, refused: draft tokens, those of old rounds with less weight.
    """

    def __init__(self) -> None:
        self.accepted = self.refused = 0.0

    def observe(self, drafted: list[int], accepted: list[int]) -> None:
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


def verdicts(drafted: list[int], accepted: list[int]) -> tuple[float, float]:
    """Draft tokens accepted and refused in a round, mean over rows.

    Behind the first refusal of a row nothing is judged, so a row refuses one token or none.
    """
    rows = len(drafted)
    refused = sum(good < many for many, good in zip(drafted, accepted, strict=True))
    return sum(accepted) / rows, refused / rows


class CostModel:
    """What speculation costs and gives, measured as decoding runs.

    With `a` the chance that a draft token is accepted, `T(n)` the time of a target forward over
    `n` tokens and `t` that of one draft forward, `k` draft tokens a round give

        (1 - a^(k+1)) / (1 - a) tokens  in  k * t + T(k + 1) seconds

    (Leviathan et al. 2023, eq. 1). Recent rounds count more than old ones.

    Args:
        experience: the acceptance of earlier runs, which this one begins with and adds to.
    """

    def __init__(self, experience: Acceptance | None = None) -> None:
        self.experience = experience if experience is not None else Acceptance()
        self.costs = ForwardCosts()
        self.rounds = 0
        self._draft_times = Recent()
        expected = self.experience.rate  # weak evidence: another text may be harder
        self._accepted, self._refused = WEIGHT * expected, WEIGHT * (1 - expected)

    def observe_draft(self, seconds_each: float) -> None:
        """One draft forward took `seconds_each`."""
        self._draft_times.add(seconds_each)

    def observe_round(self, drafted: list[int], accepted: list[int], seconds: float) -> None:
        """A target forward over the largest of `drafted`, plus the root, took `seconds`."""
        self.rounds += 1
        self.costs.add(1 + max(drafted, default=0), seconds)
        self.observe_verdicts(drafted, accepted)

    def observe_verdicts(self, drafted: list[int], accepted: list[int]) -> None:
        """Of `drafted` tokens of each row `accepted` were what the target says, too."""
        if not any(drafted):
            return
        self.forget(MEMORY)
        good, bad = verdicts(drafted, accepted)
        self._accepted += good
        self._refused += bad
        self.experience.observe(drafted, accepted)

    def forget(self, share: float) -> None:
        """Let the acceptance seen so far weigh only `share` as much as before."""
        self._accepted *= share
        self._refused *= share

    @property
    def acceptance(self) -> float:
        """Estimated chance that a draft token is accepted."""
        return self._accepted / (self._accepted + self._refused)

    @property
    def draft_seconds(self) -> float | None:
        """Time of a draft forward, or `None` before the first."""
        return self._draft_times.typical

    @property
    def is_ready(self) -> bool:
        """Whether a plain step and a draft forward have been timed."""
        return self.draft_seconds is not None and self.costs.knows_plain

    def gain(self, num_draft_tokens: int) -> float:
        """Speed with that many draft tokens a round, as a multiple of plain decoding's."""
        a, block = self.acceptance, num_draft_tokens + 1
        tokens = (1 - a**block) / (1 - a)
        drafting = num_draft_tokens * (self.draft_seconds or 0.0)
        return tokens * self.costs.seconds(1) / (drafting + self.costs.seconds(block))

    def best(self, largest: int) -> int:
        """The fastest number of draft tokens a round, from 1 to `largest`."""
        return max(range(1, largest + 1), key=self.gain)

    def __str__(self) -> str:
        return (
            f"acceptance {self.acceptance:.2f}, draft forward "
            f"{1e3 * (self.draft_seconds or 0):.1f} ms, plain step "
            f"{1e3 * self.costs.seconds(1):.1f} ms"
        )


class Recent:
    """The typical one of the last few times: their lower median, which one stall can't move."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=5)

    def add(self, seconds: float) -> None:
        self.times.append(seconds)

    @property
    def typical(self) -> float | None:
        if not self.times:
            return None
        return sorted(self.times)[(len(self.times) - 1) // 2]


class ForwardCosts:
    """Seconds of a target forward by block size: measured where seen, a line in between."""

    def __init__(self) -> None:
        self._times: dict[int, Recent] = defaultdict(Recent)
        self._seen: dict[int, float] = {}  # the typical time of each block size

    @property
    def knows_plain(self) -> bool:
        return 1 in self._seen

    def add(self, block: int, seconds: float) -> None:
        self._times[block].add(seconds)
        self._seen[block] = self._times[block].typical or seconds

    def seconds(self, block: int) -> float:
        """Estimate for `block` tokens; flat outside what was seen, never below a smaller block."""
        if block in self._seen:
            return self._seen[block]
        below = [size for size in self._seen if size < block]
        above = [size for size in self._seen if size > block]
        if below and above:
            low, high = max(below), min(above)
            share = (block - low) / (high - low)
            return (1 - share) * self._seen[low] + share * self._seen[high]
        if below:
            return self._beyond(block, sorted(below))
        return self._seen[min(above)]

    def _beyond(self, block: int, sizes: list[int]) -> float:
        last = sizes[-1]
        if len(sizes) == 1:
            return self._seen[last]
        first = sizes[0]
        slope = (self._seen[last] - self._seen[first]) / (last - first)
        return self._seen[last] + max(slope, 0.0) * (block - last)
