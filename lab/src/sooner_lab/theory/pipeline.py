"""Results and accounting of the simulators."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import check_whole
from sooner.errors import SoonerError

from .costs import NANO, StepCosts


@dataclass(frozen=True)
class SimulatedRun:
    """A simulated decoding.

    Attributes:
        method: `plain`, `vanilla`, `parallel` or `free-running`.
        num_draft_tokens: drafted a round; `None` is without limit.
        tokens: committed tokens.
        seconds: time they took.
        plain_seconds: time that plain decoding takes for as many.
        steps: target forwards.
        drafted: draft forwards that were started.
        accepted: committed tokens that came from the draft.
        runs: tokens from one rejection to the next, the target's correction included.
        target_busy, draft_busy: seconds that each side computed.
    """

    method: str
    num_draft_tokens: int | None
    tokens: int
    seconds: float
    plain_seconds: float
    steps: int
    drafted: int
    accepted: int
    runs: tuple[int, ...]
    target_busy: float
    draft_busy: float

    @property
    def speedup(self) -> float:
        """Over plain decoding."""
        return self.plain_seconds / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def accepted_run_length(self) -> float:
        """Mean tokens between two rejections as `Stats` counts them; the paper's M is one less."""
        return sum(self.runs) / len(self.runs) if self.runs else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Committed tokens a target forward; plain decoding has 1.0."""
        return self.tokens / self.steps

    @property
    def target_utilisation(self) -> float:
        """Share of the time in which the target computes."""
        return self.target_busy / self.seconds

    @property
    def draft_utilisation(self) -> float:
        """Share of the time in which the draft computes, for nothing or not."""
        return self.draft_busy / self.seconds


class Ledger:
    """Records one simulation, in nanoseconds; `close` makes the `SimulatedRun`."""

    def __init__(self, costs: StepCosts, tokens: int, num_draft_tokens: int | None) -> None:
        if tokens < 1:
            raise SoonerError(f"{tokens} tokens to decode; give 1 or more")
        if num_draft_tokens is not None:
            check_whole("num_draft_tokens", num_draft_tokens)
        self.costs, self.num_draft_tokens = costs, num_draft_tokens
        self.left = tokens
        self.position = self.steps = self.drafted = self.accepted = 0
        self.runs: list[int] = []
        self._target_busy = self._draft_busy = self._draft_end = self._open = 0

    def target(self, start: int, waiting: int) -> int:
        """A target forward over the last token and `waiting` drafts; returns its end."""
        end = start + self.costs.step_ns(1 + waiting)
        self.steps += 1
        self._target_busy += end - start
        return end

    def draft(self, start: int, end: int, tokens: int) -> None:
        """Draft forwards back to back."""
        self.drafted += tokens
        self._draft_busy += end - start
        self._draft_end = end

    def commit(self, tokens: int, accepted: int, rejected: bool) -> None:
        """Tokens become output, `accepted` of them the draft's; what is past the end is cut."""
        tokens = min(tokens, self.left)
        self.left -= tokens
        self.position += tokens
        self.accepted += min(accepted, tokens)
        self._open += tokens
        if rejected:
            self.runs.append(self._open)
            self._open = 0

    def close(self, method: str, now: int) -> SimulatedRun:
        """The figures; what the draft still computed at the end is cut there."""
        runs = (*self.runs, self._open) if self._open else tuple(self.runs)
        return SimulatedRun(
            method=method,
            num_draft_tokens=self.num_draft_tokens,
            tokens=self.position,
            seconds=now / NANO,
            plain_seconds=self.position * self.costs.step_ns(1) / NANO,
            steps=self.steps,
            drafted=self.drafted,
            accepted=self.accepted,
            runs=runs,
            target_busy=self._target_busy / NANO,
            draft_busy=(self._draft_busy - max(0, self._draft_end - now)) / NANO,
        )
