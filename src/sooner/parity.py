"""Is the output the same? And if not: a floating-point tie, or a bug?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Literal

import torch
from torch import Tensor

VerifyResult = Literal["identical", "tie", "bug"]

ROUNDINGS = {torch.float32: 256.0, torch.float64: 256.0, torch.float16: 4.0, torch.bfloat16: 4.0}
"""Roundings, in units of the dtype's epsilon, that two orders of summation may differ by.

16-bit kernels accumulate in fp32 and round once a layer; fp32 ones accumulate many small errors.
"""


@dataclass(frozen=True)
class Parity:
    """Compares two token sequences of one prompt.

    Attributes:
        verdict: `identical`; `tie` when the reference's two best scores at the first difference
            lie within rounding of each other; else `bug`.
        divergence: index of the first new token that differs, or `None`.
        reference, candidate: the two tokens there; `None` where a sequence had already ended.
        gap: the reference's best score there minus that of the candidate's token, in logits; like
            the next two `None` where there are no scores.
        top2_gap: its best score minus its second best.
        tolerance: the largest gap that rounding explains.
    """

    verdict: VerifyResult
    divergence: int | None = None
    reference: int | None = None
    candidate: int | None = None
    gap: float | None = None
    top2_gap: float | None = None
    tolerance: float | None = None

    @property
    def ok(self) -> bool:
        """Whether an exact method may show a speed figure."""
        return self.verdict != "bug"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if self.divergence is None:
            return "identical"
        gap, top2, allowed = (
            "unknown" if value is None else f"{value:.3g}"
            for value in (self.gap, self.top2_gap, self.tolerance)
        )
        return (
            f"{self.verdict}: token {self.divergence} is {self.candidate} instead of "
            f"{self.reference} (gap {gap}, top-2 gap {top2}, rounding explains {allowed})"
        )


def compare(
    reference: Sequence[int], candidate: Sequence[int], scores: Sequence[Tensor] | None = None
) -> Parity:
    """Compare the new tokens of two runs.

    Args:
        reference: tokens of plain decoding.
        candidate: tokens of the method.
        scores: the reference's processed scores, one `[vocab]` for each of its tokens; without
            them a difference can't be excused as a tie.
    """
    pairs = enumerate(zip_longest(reference, candidate))
    first = next(((index, *pair) for index, pair in pairs if pair[0] != pair[1]), None)
    if first is None:
        return Parity("identical")
    index, ours, other = first
    if scores is None or index >= len(scores):
        return Parity("bug", index, ours, other)
    best, second = scores[index].topk(2).values.tolist()
    # A candidate that merely went on, or stopped, has no token to weigh: the runner-up stands in.
    chosen = float(scores[index][other]) if other is not None else second
    tolerance = rounding(scores[index].dtype, best)
    verdict: VerifyResult = "tie" if best - chosen <= tolerance else "bug"
    return Parity(verdict, index, ours, other, best - chosen, best - second, tolerance)


def rounding(dtype: torch.dtype, magnitude: float) -> float:
    """Returns the largest difference of two logits around `magnitude` that rounding explains."""
    return torch.finfo(dtype).eps * ROUNDINGS.get(dtype, 4.0) * max(1.0, abs(magnitude))


def reference_run(
    model: Any, inputs: Mapping[str, Any], **options: Any
) -> tuple[list[list[int]], list[list[Tensor]]]:
    """Runs plain incremental decoding by HF's own `generate`, and returns its scores.

    Returns:
        New tokens of each row up to and including its end, and the processed scores `[vocab]` of
        each of them in the model's dtype.
    """
    output = model.generate(
        **inputs, **options, do_sample=False, output_scores=True, return_dict_in_generate=True
    )
    width = inputs["input_ids"].shape[1]
    ends = end_ids(model, **options)
    tokens = [until_end(row, ends) for row in output.sequences[:, width:].tolist()]
    scores = [
        [output.scores[step][row].to(model.dtype) for step in range(len(row_tokens))]
        for row, row_tokens in enumerate(tokens)
    ]
    return tokens, scores


def end_ids(model: Any, **options: Any) -> list[int]:
    """Returns token ids that end a text of `model.generate(**options)`."""
    config = options.get("generation_config") or getattr(model, "generation_config", None)
    ends = options.get("eos_token_id", getattr(config, "eos_token_id", None))
    return [] if ends is None else list(ends) if isinstance(ends, list | tuple) else [ends]


def until_end(tokens: list[int], ends: Collection[int]) -> list[int]:
    """`tokens` up to and including the first that ends the text; padding falls away."""
    end = next((index for index, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: end + 1]
