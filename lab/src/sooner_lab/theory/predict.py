"""Predicted speed-up of a pair of models, by simulation, without loading them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sooner.checks import check_whole
from sooner.errors import SoonerError

from .agreement import Agreement
from .costs import StepCosts
from .freerun import free_running
from .lockstep import parallel, plain, vanilla
from .pipeline import SimulatedRun

SAMPLE = 12_000
"""Tokens simulated for each figure: a steady state, not one short answer."""

LARGEST = 32
MARGIN = 1.01
"""A later row of `METHODS` is recommended over an earlier one only if it is this much faster."""

METHODS = ("plain", "vanilla", "parallel", "free-running")
PLACEMENTS = {"plain": "none", "vanilla": "inline"}


@dataclass(frozen=True)
class PredictedPair:
    """A draft and a target before they are loaded.

    Attributes:
        name: for the table's title.
        costs: step times.
        agreement: which draft tokens pass.
        tokens: length of an answer.
        target_prefill, draft_prefill: seconds before decoding; `None` for the target's: unknown,
            and so is e2e.

    Raises:
        SoonerError: fewer than one token, or a negative time.
    """

    name: str
    costs: StepCosts
    agreement: Agreement
    tokens: int = 512
    target_prefill: float | None = None
    draft_prefill: float = 0.0

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise SoonerError(f"tokens is {self.tokens}; an answer has 1 or more")
        times = {"target prefill": self.target_prefill, "draft prefill": self.draft_prefill}
        for name, value in times.items():
            if value is not None and not 0 <= value < math.inf:
                raise SoonerError(f"{name} is {value} s; it must be finite and 0 or more")


@dataclass(frozen=True)
class Row:
    """One method's prediction.

    Attributes:
        method: of `METHODS`.
        num_draft_tokens: of a round, or that may wait for the target when running free;
            `None`: plain decoding, or no limit.
        placement: where the draft runs: `none`, `inline`, or `process` (a worker with its own
            device or cores, so that it takes nothing from the target).
        decode_speedup, tokens_per_second: steady state, first token not counted.
        e2e_seconds, e2e_speedup: whole answer; `None` if the prefill is unknown.
        run: the simulation behind it.
    """

    method: str
    num_draft_tokens: int | None
    placement: str
    decode_speedup: float
    tokens_per_second: float
    e2e_seconds: float | None
    e2e_speedup: float | None
    run: SimulatedRun

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, the run by its figures."""
        named = ("method", "num_draft_tokens", "placement", "decode_speedup", "tokens_per_second")
        return {name: getattr(self, name) for name in (*named, "e2e_seconds", "e2e_speedup")} | {
            "accepted_run_length": self.run.accepted_run_length,
            "mean_acceptance_length": self.run.mean_acceptance_length,
            "target_utilisation": self.run.target_utilisation,
            "draft_utilisation": self.run.draft_utilisation,
        }


@dataclass(frozen=True)
class Prediction:
    """All methods for one pair, slowest idea first, and the one to take."""

    pair: PredictedPair
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row:
        """The fastest, or the plainest of those within `MARGIN` of it."""
        fastest = max(row.decode_speedup for row in self.rows)
        return next(row for row in self.rows if row.decode_speedup * MARGIN >= fastest)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        pair, best = self.pair, self.best
        return {
            "pair": pair.name,
            "target_ms": 1e3 * pair.costs.step(1),
            "draft_ms": 1e3 * pair.costs.draft,
            "transfer_ms": 1e3 * pair.costs.transfer,
            "speed_ratio": pair.costs.ratio,
            "acceptance": pair.agreement.rate,
            "tokens": pair.tokens,
            "methods": [row.as_dict() for row in self.rows],
            "recommended": {
                "method": best.method,
                "num_draft_tokens": best.num_draft_tokens,
                "placement": best.placement,
            },
        }


def predict(pair: PredictedPair, largest: int = LARGEST) -> Prediction:
    """Simulate every method, each with its best number of draft tokens up to `largest`.

    Raises:
        SoonerError: `largest` below 1.
    """
    check_whole("max_draft_tokens", largest)
    costs, agreement = pair.costs, pair.agreement
    # Beyond twice what fits beside a verification, rounds only grow longer.
    widest = min(largest, 2 * math.ceil(costs.ratio) + 2)
    runs = [
        plain(costs, 1),
        _fastest(vanilla(costs, agreement, size, SAMPLE) for size in range(1, largest + 1)),
        _fastest(parallel(costs, agreement, size, SAMPLE) for size in range(1, widest + 1)),
        _fastest(
            free_running(costs, agreement, SAMPLE, size)
            for size in (*_near_ratio(costs, largest), None)
        ),
    ]
    return Prediction(pair, tuple(_row(pair, run) for run in runs))


def _near_ratio(costs: StepCosts, largest: int) -> list[int]:
    """Limits worth trying where the draft runs free: one more forward begun is often a dead one."""
    low = max(1, math.floor(costs.ratio))
    return [min(low, largest), min(math.ceil(costs.ratio), largest)]


def _fastest(runs: Iterable[SimulatedRun]) -> SimulatedRun:
    return max(runs, key=lambda run: run.speedup)


def _row(pair: PredictedPair, run: SimulatedRun) -> Row:
    rate = run.speedup / pair.costs.step(1)
    e2e = _e2e(pair, run.method, pair.tokens / rate)
    base = _e2e(pair, "plain", pair.tokens * pair.costs.step(1))
    return Row(
        method=run.method,
        num_draft_tokens=run.num_draft_tokens,
        placement=PLACEMENTS.get(run.method, "process"),
        decode_speedup=run.speedup,
        tokens_per_second=rate,
        e2e_seconds=e2e,
        e2e_speedup=base / e2e if base is not None and e2e is not None else None,
        run=run,
    )


def _e2e(pair: PredictedPair, method: str, decode: float) -> float | None:
    """Plain has no draft to prefill; sequential decoding waits for it, parallel hides it."""
    if pair.target_prefill is None:
        return None
    both = {
        "plain": pair.target_prefill,
        "vanilla": pair.target_prefill + pair.draft_prefill,
    }.get(method, max(pair.target_prefill, pair.draft_prefill))
    return both + decode
