"""Figures that the ParallelVLM paper publishes, for comparison with our own predictions."""

from __future__ import annotations

from dataclasses import dataclass, field

from sooner.checks import check_choice

DATASETS = ("VideoDetailCaption", "VideoMME", "MVBench", "MVLU", "LongVideoBench")
VANILLA_DRAFT_TOKENS = 5
OUTPUT_TOKENS = 512


@dataclass(frozen=True)
class PaperResult:
    """One row of table 1.

    Attributes:
        run_length: M on each data set of `DATASETS`. The paper defines it once; its own figures
            need two readings: of vanilla SD, tokens a round with the target's own; of ParallelVLM,
            draft tokens between two rejections without it.
        speedup: decode speed-up on each.
    """

    run_length: tuple[float, ...]
    speedup: tuple[float, ...]

    @property
    def mean_run_length(self) -> float:
        return sum(self.run_length) / len(self.run_length)


@dataclass(frozen=True)
class PaperPair:
    """A draft and a target of the paper.

    Attributes:
        name: as the paper writes it.
        target_ms: T_p, tables 3 and 5.
        draft_ms: T_q by the share of video tokens pruned, tables 3 and 5.
        num_draft_tokens: ParallelVLM's at a pruned share of 0.9, caption of table 1.
        parallel: table 1, ParallelVLM.
        vanilla: table 1, vanilla SD with an unpruned draft; the self-speculative pairs have none.
        target_prefill_s, draft_prefill_s: table 6; `None` where the paper has no figure.
    """

    name: str
    target_ms: float
    draft_ms: dict[float, float] = field(hash=False)
    num_draft_tokens: int
    parallel: PaperResult
    vanilla: PaperResult | None = None
    target_prefill_s: float | None = None
    draft_prefill_s: float | None = None


PAIRS: dict[str, PaperPair] = {
    "llava-ov-0.5b-7b": PaperPair(
        "LLaVA-OV (0.5B & 7B)",
        78.3,
        {0.0: 46.1, 0.5: 32.5, 0.9: 25.8},
        3,
        PaperResult((8.47, 7.86, 8.64, 8.24, 8.35), (2.12, 2.06, 2.15, 2.14, 2.10)),
        PaperResult((4.26, 4.34, 4.18, 4.22, 4.32), (1.08, 1.10, 1.05, 1.06, 1.01)),
    ),
    "llava-ov-7b-72b": PaperPair(
        "LLaVA-OV (7B & 72B)",
        420.0,
        {0.0: 78.3, 0.5: 57.5, 0.9: 46.6},
        9,
        PaperResult((6.82, 6.85, 6.81, 6.72, 6.93), (3.43, 3.38, 3.28, 3.24, 3.46)),
        PaperResult((4.14, 4.26, 3.98, 4.06, 4.27), (1.98, 2.06, 1.92, 2.01, 2.10)),
        target_prefill_s=44.23,
        draft_prefill_s=7.92,
    ),
    "qwen2.5-vl-7b-32b": PaperPair(
        "Qwen2.5-VL (7B & 32B)",
        203.0,
        {0.0: 63.7, 0.5: 48.2, 0.9: 39.8},
        5,
        PaperResult((4.23, 4.37, 4.24, 4.15, 4.43), (2.40, 2.42, 2.41, 2.41, 2.45)),
        PaperResult((3.37, 3.44, 3.38, 3.21, 3.47), (1.26, 1.24, 1.23, 1.23, 1.31)),
    ),
    "llava-ov-7b-7b": PaperPair(
        "LLaVA-OV (7B & 7B)",
        78.3,
        {0.0: 78.3, 0.5: 57.5, 0.9: 46.6},
        2,
        PaperResult((14.8, 15.6, 13.2, 15.7, 15.0), (1.53, 1.55, 1.49, 1.59, 1.57)),
    ),
    "qwen2.5-vl-7b-7b": PaperPair(
        "Qwen2.5-VL (7B & 7B)",
        63.7,
        {0.0: 63.7, 0.5: 48.2, 0.9: 39.8},
        2,
        PaperResult((14.4, 14.9, 14.8, 14.6, 15.3), (1.52, 1.53, 1.47, 1.50, 1.53)),
    ),
}

LATENCY: dict[str, dict[str, float | None]] = {
    "plain": {"draft prefill": 7.92, "target prefill": 44.23, "draft decode": None,
              "target decode": 228.14, "tokens/s": 2.25, "total": 280.29},
    "vanilla": {"draft prefill": 7.92, "target prefill": 44.23, "draft decode": 58.14,
                "target decode": 54.85, "tokens/s": 4.53, "total": 165.15},
    "parallel": {"draft prefill": None, "target prefill": 44.23, "draft decode": None,
                 "target decode": 67.85, "tokens/s": 7.55, "total": 112.08},
}  # fmt: skip
"""Table 6, seconds (LLaVA-OV 7B & 72B, 512 tokens). Its AR column has a draft prefill and adds it
up, though plain decoding has no draft: without it the total is 272.37."""

PRUNING = {
    0.90: (6.82, 0.41, 3.43),
    0.95: (6.53, 0.37, 3.28),
    0.99: (5.74, 0.33, 2.90),
    1.00: (4.53, 0.27, 2.53),
}
"""Table 7: pruned share -> M, τ (a share of the window), speed-up; LLaVA-OV 7B & 72B."""


def find(name: str) -> PaperPair:
    """The pair of that name.

    Raises:
        SoonerError: unknown; names the nearest and all.
    """
    check_choice("pair", name, PAIRS)
    return PAIRS[name]
