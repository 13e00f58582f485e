"""The paper's tables 1, 6 and 7 from its own step times and run lengths, for `sooner bench papers`.

Assumptions, the same for every cell; none is fitted to a speed-up:

- T_p and T_q are tables 3 and 5: unpruned for vanilla SD, 0.9 pruned for ParallelVLM; a
  verification costs what a plain step costs, transfer nothing.
- Draft tokens pass at one rate. Vanilla SD's M is read as tokens a round with the target's own
  (`renewal.rate_of_round`), ParallelVLM's as draft tokens between two rejections, corrections left
  out and empty runs included (`renewal.rate_of_run`, as PEARL's code counts).
- ParallelVLM's rounds are lock-step with the caption's window; a dead window is drafted to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from . import renewal
from .agreement import Agreement
from .costs import StepCosts
from .lockstep import parallel, vanilla
from .pipeline import SimulatedRun
from .tables import (
    DATASETS,
    LATENCY,
    OUTPUT_TOKENS,
    PAIRS,
    PRUNING,
    VANILLA_DRAFT_TOKENS,
    PaperPair,
)

TOKENS = 8_000
BIG = "llava-ov-7b-72b"


@dataclass(frozen=True)
class ReproducedFigure:
    """One figure of the paper and ours.

    Attributes:
        row, column: where it stands.
        paper: as printed.
        ours: predicted.
    """

    row: str
    column: str
    paper: float
    ours: float


def table1() -> list[ReproducedFigure]:
    """Speed-ups of vanilla SD (three pairs; the paper has no more) and ParallelVLM (five)."""
    return [*_vanilla_cells(), *_parallel_cells()]


def table7() -> list[ReproducedFigure]:
    """Speed-ups under extreme pruning; T_q stays at its 0.9 value, as appendix C says it does."""
    pair = PAIRS[BIG]
    return [
        ReproducedFigure(
            "LLaVA-OV (7B & 72B), ParallelVLM",
            f"{pruned:.2f}",
            speedup,
            parallel_run(pair, run_length).speedup,
        )
        for pruned, (run_length, _, speedup) in PRUNING.items()
    ]


def table6() -> list[ReproducedFigure]:
    """Seconds of decoding 512 tokens; M is its mean over table 1's data sets."""
    pair = PAIRS[BIG]
    assert pair.vanilla is not None
    sequential = vanilla_run(pair, pair.vanilla.mean_run_length)
    side_by_side = parallel_run(pair, pair.parallel.mean_run_length)
    rounds = OUTPUT_TOKENS * sequential.steps / sequential.tokens
    ours = {
        "plain": {"target decode": OUTPUT_TOKENS * pair.target_ms / 1e3},
        "vanilla": {
            "draft decode": rounds * VANILLA_DRAFT_TOKENS * pair.draft_ms[0.0] / 1e3,
            "target decode": rounds * pair.target_ms / 1e3,
        },
        "parallel": {"target decode": OUTPUT_TOKENS / side_by_side.tokens_per_second},
    }
    for method, parts in ours.items():
        decode = sum(parts.values())
        prefills = [LATENCY[method][f"{side} prefill"] or 0.0 for side in ("target", "draft")]
        parts |= {"tokens/s": OUTPUT_TOKENS / decode, "total": sum(prefills) + decode}
    return [
        ReproducedFigure(method, name, LATENCY[method][name] or 0.0, value)
        for method, parts in ours.items()
        for name, value in ((name, parts[name]) for name in LATENCY[method] if name in parts)
    ]


@lru_cache(maxsize=128)
def _agreement(rate: float) -> Agreement:
    return Agreement.even(rate, TOKENS)


def vanilla_run(pair: PaperPair, tokens_a_round: float) -> SimulatedRun:
    """Vanilla SD of a pair whose rounds commit `tokens_a_round`."""
    rate = renewal.rate_of_round(tokens_a_round, VANILLA_DRAFT_TOKENS)
    costs = StepCosts(pair.target_ms / 1e3, pair.draft_ms[0.0] / 1e3)
    return vanilla(costs, _agreement(rate), VANILLA_DRAFT_TOKENS, TOKENS)


def parallel_run(pair: PaperPair, accepted: float) -> SimulatedRun:
    """ParallelVLM of a pair whose runs accept `accepted` draft tokens."""
    costs = StepCosts(pair.target_ms / 1e3, pair.draft_ms[0.9] / 1e3)
    return parallel(
        costs,
        _agreement(renewal.rate_of_run(accepted)),
        pair.num_draft_tokens,
        TOKENS,
        cancel=False,
    )


def _vanilla_cells() -> Iterator[ReproducedFigure]:
    for pair in PAIRS.values():
        for index, column in enumerate(DATASETS if pair.vanilla else ()):
            assert pair.vanilla is not None
            ours = vanilla_run(pair, pair.vanilla.run_length[index]).speedup
            yield ReproducedFigure(
                f"{pair.name}, vanilla SD", column, pair.vanilla.speedup[index], ours
            )


def _parallel_cells() -> Iterator[ReproducedFigure]:
    for pair in PAIRS.values():
        for index, column in enumerate(DATASETS):
            run_length, paper = pair.parallel.run_length[index], pair.parallel.speedup[index]
            ours = parallel_run(pair, run_length).speedup
            yield ReproducedFigure(f"{pair.name}, ParallelVLM", column, paper, ours)
