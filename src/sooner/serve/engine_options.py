"""A job in the words of `Engine.admit`: sampling, stops, drafts and grammar as its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from ..methods import HSD, Method
from .jobs import GenerationJob, JobSampling

COPIED = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
"""Settings that `generate` calls the same, and that are left to the model's config if unset."""


class GrammarLike(Protocol):
    """A grammar that follows one answer (`openai/grammar.py`)."""

    def masks(self, tokens: Sequence[int], parents: Sequence[int]) -> Any: ...

    def accept(self, ids: Sequence[int]) -> None: ...


class GrammarProcessor(LogitsProcessor):
    """Forbids every token that leaves a grammar, behind any draft of the answer.

    The grammar stands behind what is committed: whoever commits tokens has it accept them.

    Args:
        grammar: of one answer.
        said: tells how many tokens of the answer it has accepted.
        width: ids of the prompt.
    """

    def __init__(self, grammar: GrammarLike, said: Callable[[], int], width: int) -> None:
        self.grammar, self.said, self.width = grammar, said, width

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores of what follows `input_ids [1, prompt and answer]`, `[1, vocab]`."""
        drafted = input_ids[0, self.width + self.said() :].tolist()
        masks = self.grammar.masks(drafted, range(-1, len(drafted) - 1)).masks
        return scores.masked_fill(~masks[-1].to(scores.device), -torch.inf)


class JobOptions:
    """What `Engine.admit` is told of a job, but for its inputs, seed and committed ids.

    Args:
        method: of the engine. Where it is `HSD`, a job's `prediction` is its draft, and a job
            without one decodes plainly.
    """

    def __init__(self, method: Method | None = None) -> None:
        self.method = method

    @property
    def takes_predictions(self) -> bool:
        """Whether `GenerationJob.prediction` is drafted from."""
        return isinstance(self.method, HSD)

    def __call__(self, job: GenerationJob, said: Callable[[], int] = lambda: 0) -> dict[str, Any]:
        """Options of one job.

        Args:
            said: tells how many tokens it has committed so far.
        """
        sampling = job.sampling
        options: dict[str, Any] = {
            "max_new_tokens": job.max_tokens,
            "eos_token_id": sorted(job.stop_token_ids) or None,
            **_settings(sampling),
        }
        if sampling.logit_bias:
            bias = {(int(token),): float(value) for token, value in sampling.logit_bias.items()}
            options["sequence_bias"] = bias
        if sampling.logprobs is not None:
            options["logprobs"] = sampling.logprobs
        if isinstance(self.method, HSD):
            drafts = [job.prediction] if job.prediction else []
            options["method"] = replace(self.method, drafts=[drafts])
        if job.grammar is not None:
            processor = GrammarProcessor(job.grammar, said, job.prompt_tokens)
            options["logits_processor"] = LogitsProcessorList([processor])
        return options


def _settings(sampling: JobSampling) -> dict[str, Any]:
    """Temperature and what goes with it; nothing of what greedy decoding would ignore."""
    given = {name: getattr(sampling, name) for name in COPIED}
    options = {name: value for name, value in given.items() if value is not None}
    if sampling.temperature is None:
        return options
    if sampling.temperature == 0:
        for name in ("top_p", "top_k", "min_p"):
            options.pop(name, None)
        return {**options, "do_sample": False}
    return {**options, "do_sample": True, "temperature": float(sampling.temperature)}
