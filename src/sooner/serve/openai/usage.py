"""Usage and metrics of an answer, over its choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..jobs import JobUsage
from .answers import (
    AnswerMetrics,
    CompletionDetails,
    PromptDetails,
    SpeculativeDecoding,
    TokenUsage,
)
from .choice import Choice

MODES = ("exact", "relaxed", "approximate", "draft")
"""The last of those of several choices is the answer's."""


def token_usage(choices: Sequence[Choice], prompts: Sequence[int]) -> TokenUsage:
    """Args:
    prompts: tokens of each prompt, however many choices it has.
    """
    accepted = [
        min(choice.usage.accepted_prediction_tokens, choice.num_drafted) for choice in choices
    ]
    expected = sum(
        choice.usage.accepted_prediction_tokens + choice.usage.rejected_prediction_tokens
        for choice in choices
    )
    tokens = sum(choice.num_tokens for choice in choices)
    each = max(len(choices) // max(len(prompts), 1), 1)
    # Later choices of a prompt share the pages of the first, whatever came before the request.
    cached = sum(choice.usage.cached_tokens for choice in choices[::each])
    return TokenUsage(
        prompt_tokens=sum(prompts),
        completion_tokens=tokens,
        total_tokens=sum(prompts) + tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=cached),
        completion_tokens_details=CompletionDetails(
            accepted_prediction_tokens=sum(accepted),
            rejected_prediction_tokens=expected - sum(accepted),
        ),
    )


def speculative_decoding(stats: Sequence[JobUsage]) -> AnswerMetrics:
    """Returns counts of all choices together; means are of the sums."""
    histogram: Counter[int] = Counter()
    for entry in stats:
        histogram.update(entry.acceptance_histogram)
    steps, drafted = sum(histogram.values()), sum(entry.num_draft_tokens for entry in stats)
    accepted = sum(many * rounds for many, rounds in histogram.items())
    return AnswerMetrics(
        speculative_decoding=SpeculativeDecoding(
            mode=max((entry.mode for entry in stats), key=MODES.index, default="exact"),
            num_spec_steps=steps,
            num_draft_tokens=drafted,
            num_accepted_draft_tokens=accepted,
            draft_acceptance_rate=accepted / drafted if drafted else 0.0,
            mean_acceptance_length=1 + accepted / steps if steps else 1.0,
            acceptance_histogram=[
                histogram[many] for many in range(max(histogram, default=-1) + 1)
            ],
        )
    )
