"""What `sooner bench gpu` measures, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

SECTIONS = (
    "step", "methods", "verify", "video", "engine", "kernels", "graphs", "prefill",
)  # fmt: skip
"""Sections of a default run, those of most worth first."""

MORE = ("prefill-1m",)
"""Sections that only `--section` runs."""

BUDGET = 540.0
"""Seconds of a default run."""

COSTS = {
    "step": 130.0,
    "methods": 110.0,
    "verify": 40.0,
    "video": 60.0,
    "engine": 30.0,
    "kernels": 70.0,
    "graphs": 15.0,
    "prefill": 35.0,
    "prefill-1m": 120.0,
}
"""Seconds that each section is expected to take on an H200. One that finds less than half of them
left is skipped, and none may take more than twice as many."""


@dataclass(frozen=True)
class GpuSettings:
    """Settings of a run.

    Attributes:
        sections: names of `SECTIONS` and `MORE`, in the order in which they run.
        budget: seconds that the whole run may take.
        device: where everything runs; on anything but `cuda` times are those of the host's clock.
        dtype: of weights and states.
        heads, kv_heads, head_dim: of the attention that is timed.
        blocks, contexts, kernel_rows: entries, committed tokens and rows of block attention.
        repeats: timed runs of each arm of a kernel or of a step.
        target, draft: names of `models.SHAPES`.
        shapes: models whose plain step is timed; the first one is compiled.
        step_context, step_tokens: prompt and new tokens of the plain steps.
        text_runs: timed calls of each arm that decodes a text, behind the first one.
        profiled_rounds: rounds of a text that the profiler sees; 0 is none.
        verify_blocks, verify_contexts: of the steps that verify.
        draft_context, draft_tokens: prompt and new tokens of the drafted texts.
        num_draft_tokens: tokens of a draft; nodes: of a tree of a head.
        acceptance: chances that a draft token is right; at the first every method is timed.
        video_grid: frame pairs, patches down and across; video_tokens: new tokens behind it.
        engine_rows, engine_context, engine_tokens, engine_waves: requests of a wave, tokens of
            their prompts and new ones, and waves.
        graph_rows: most rows of the steps that are captured.
        rows_acceptance: the chance that draft tokens of the engine's rows are right.
        prefill_lengths: tokens of the sparse prefills.
        checked_length: tokens at which sparse kernels are held to the reference.
        stride: of the grid pattern; a frame of Qwen2.5-VL or LLaVA-Video has 100 to 400 tokens.
        costs: seconds that each section is expected to take; 0 is not known.
        compiles: time HF's compiled step, which takes a minute or more.
        seed: of weights, states and scripts.
    """

    sections: tuple[str, ...] = SECTIONS
    budget: float = BUDGET
    device: str = "cuda"
    dtype: str = "bfloat16"
    heads: int = 28
    kv_heads: int = 4
    head_dim: int = 128
    blocks: tuple[int, ...] = (1, 16, 64, 4, 128)
    contexts: tuple[int, ...] = (32_768, 1_024, 131_072)
    kernel_rows: tuple[int, ...] = (1, 8)
    repeats: int = 7
    target: str = "qwen2.5-vl-7b"
    draft: str = "llava-onevision-0.5b"
    shapes: tuple[str, ...] = ("qwen2.5-vl-7b", "llava-onevision-0.5b", "llava-onevision-7b")
    step_context: int = 1_024
    step_tokens: int = 64
    text_runs: int = 2
    profiled_rounds: int = 6
    verify_blocks: tuple[int, ...] = (1, 16, 2, 4, 8, 26, 64, 128)
    verify_contexts: tuple[int, ...] = (32_768, 1_024, 131_072)
    draft_context: int = 1_024
    draft_tokens: int = 96
    num_draft_tokens: int = 5
    nodes: int = 48
    acceptance: tuple[float, ...] = (0.8, 0.6, 0.9)
    video_grid: tuple[int, int, int] = (32, 56, 56)
    video_tokens: int = 96
    engine_rows: int = 8
    engine_context: int = 512
    engine_tokens: int = 64
    engine_waves: int = 3
    graph_rows: int = 32
    rows_acceptance: float = 0.8
    prefill_lengths: tuple[int, ...] = (8_192, 32_768, 131_072)
    checked_length: int = 1_000
    stride: int = 256
    costs: Mapping[str, float] = field(default_factory=lambda: dict(COSTS))
    compiles: bool = True
    seed: int = 0

    @classmethod
    def tiny(cls, **changes: object) -> Self:
        """Every section at shapes that a CPU goes through in seconds; no figure means anything."""
        small = cls(
            device="cpu",
            dtype="float32",
            heads=4,
            kv_heads=2,
            head_dim=16,
            blocks=(1, 16, 4),
            contexts=(256, 100),
            kernel_rows=(1, 2),
            repeats=2,
            target="tiny",
            draft="tiny-draft",
            shapes=("tiny", "tiny-draft"),
            step_context=24,
            step_tokens=8,
            text_runs=1,
            profiled_rounds=0,
            verify_blocks=(1, 16, 4),
            verify_contexts=(128, 64),
            draft_context=24,
            draft_tokens=10,
            num_draft_tokens=3,
            nodes=8,
            acceptance=(0.8, 0.6),
            video_grid=(1, 4, 4),
            video_tokens=16,
            engine_rows=2,
            engine_context=16,
            engine_tokens=10,
            engine_waves=2,
            graph_rows=3,
            prefill_lengths=(96,),
            checked_length=96,
            stride=8,
            costs=dict.fromkeys(COSTS, 0.0),
        )
        return replace(small, **changes)  # type: ignore[arg-type]
