"""Texts that HF and sooner decode from the same prompts, a mark behind every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .bench import GpuBench
from .timing import Run, Timing, told


@dataclass
class DecodedText:
    """One decoded batch.

    Attributes:
        tokens: new tokens of each row.
        gaps: seconds of each round behind the prefill; of batches by `sooner`, of all together.
        stats: of `sooner.generate`; `None` for HF.
    """

    tokens: list[list[int]]
    gaps: list[float]
    stats: Any = None

    @property
    def decode_tokens(self) -> int:
        """New tokens behind each row's first."""
        return sum(len(row) - 1 for row in self.tokens)

    @property
    def tokens_per_second(self) -> float:
        return self.decode_tokens / sum(self.gaps)


Decode = Callable[[Tensor, int], DecodedText]
"""`(ids [rows, width], new tokens) -> text`."""


def hf(bench: GpuBench, model: Any, **options: Any) -> Decode:
    """HF's `generate`; `options` are its own."""
    from transformers import LogitsProcessor, LogitsProcessorList

    class StepMarks(LogitsProcessor):
        """Called once a step; marks it and changes nothing."""

        def __init__(self) -> None:
            self.marks: list[Any] = []

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            self.marks.append(bench.clock.mark())
            return scores

    def decode(ids: Tensor, new: int) -> DecodedText:
        steps = StepMarks()
        made = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            do_sample=False,
            logits_processor=LogitsProcessorList([steps]),
            **options,
        )
        tokens = made[:, ids.shape[1] :].tolist()
        return DecodedText(tokens, bench.clock.gaps(steps.marks))

    return decode


def sooner_arm(bench: GpuBench, model: Any, method: Any = None, **options: Any) -> Decode:
    """`sooner.generate` by a method; `options` are its own."""
    from sooner.generation import generate

    def decode(ids: Tensor, new: int) -> DecodedText:
        rows, calls = len(ids), 0
        marks: list[Any] = []

        def on_tokens(row: int, tokens: list[int], drafted: int) -> None:
            nonlocal calls
            calls += 1
            # Rows are told one by one, the prefill's tokens first: of a batch, begin and end.
            kept = 0 if calls <= rows else len(marks) if rows == 1 else 1
            marks[kept:] = [bench.clock.mark()]

        made = generate(
            model,
            {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
            method,
            max_new_tokens=new,
            do_sample=False,
            on_tokens=on_tokens,
            **options,
        )
        return DecodedText(made.tokens, bench.clock.gaps(marks), made.stats)

    return decode


class Rerun:
    """In the place of CUDA graphs on CPUs: runs again what would be replayed."""

    nbytes = 0

    def warm_up(self, run: Run) -> None:
        run()

    def record(self, run: Run, held: Sequence[Tensor]) -> Run:
        return run


def graph_options(bench: GpuBench) -> dict[str, Any]:
    """Arguments by which `sooner.generate` captures its steps."""
    return {"graphs": "auto" if bench.clock.is_cuda else Rerun()}


def compile_options(bench: GpuBench) -> dict[str, Any]:
    """Arguments by which it compiles the decoder as well; a CPU proves the way without a
    compiler."""
    return {**graph_options(bench), "compile": bench.clock.is_cuda or {"backend": "eager"}}


@dataclass
class ArmTexts:
    """All texts of one arm, or why there are none."""

    name: str
    runs: list[DecodedText] = field(default_factory=list)
    error: str | None = None

    @property
    def tokens(self) -> list[list[int]] | None:
        return self.runs[0].tokens if self.runs else None

    @property
    def step(self) -> Timing:
        """Of all rounds of all runs."""
        return Timing.of([gap for one in self.runs for gap in one.gaps])

    @property
    def rate(self) -> Timing:
        """Tokens a second, a sample a run."""
        return Timing.of([one.tokens_per_second for one in self.runs])

    @property
    def tokens_a_round(self) -> float:
        """Mean of a row, the target's own token included; of `sooner`'s texts."""
        steps = sum(one.stats.num_spec_steps for one in self.runs)
        return sum(one.stats.decode_tokens for one in self.runs) / steps


WARM_UP = 8
"""New tokens of a text by which nothing is compiled."""


def interleaved(
    bench: GpuBench,
    arms: Mapping[str, Decode],
    ids: Tensor,
    new: int,
    runs: int,
    warm_up: int | None = None,
) -> dict[str, ArmTexts]:
    """Every arm once a round, after a text each that is thrown away.

    An arm that fails is out; its error is kept.

    Args:
        new: new tokens of a row.
        warm_up: those of the first text; as many by default, for arms that compile by shape.
    """
    found = {name: ArmTexts(name) for name in arms}
    for turn in range(1 + runs):
        for name, decode in arms.items():
            if found[name].error is not None:
                continue
            try:
                text = decode(ids, new if turn or warm_up is None else warm_up)
            except Exception as error:
                found[name].error = told(error)
                bench.clock.free()
                continue
            if turn:
                found[name].runs.append(text)
    return found
