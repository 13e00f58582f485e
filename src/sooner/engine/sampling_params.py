"""`SamplingParams`: how the tokens of a request are chosen, and when its rows end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import StoppingCriteria
from transformers.generation import logits_process as hf

from .rows import RowSettings
from .sampling import RowParams

PREFIX_FREE = (
    hf.TemperatureLogitsWarper,
    hf.TopKLogitsWarper,
    hf.TopPLogitsWarper,
    hf.MinPLogitsWarper,
    hf.TypicalLogitsWarper,
    hf.EpsilonLogitsWarper,
    hf.EtaLogitsWarper,
    hf.LogitNormalization,
    hf.InfNanRemoveLogitsProcessor,
    hf.SuppressTokensLogitsProcessor,
)
"""Processors that look at scores alone, never at the tokens before them."""


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of a request are chosen, and when its rows end.

    They are made once, where a request comes in: `hf_border` makes them of the arguments of
    transformers' `generate`. A step applies, in this order: `logit_bias`, the penalties,
    `processors`, temperature, top-k, top-p, min-p.

    Attributes:
        max_new_tokens: most new tokens of a row; `None` is no limit, which only a grid can end.
        do_sample: tokens are drawn; otherwise the best score wins.
        temperature: scores are divided by it, above 0.
        top_k: likeliest tokens that are kept; 0 is all.
        top_p, min_p: as transformers' of these names.
        repetition_penalty: transformers' penalty of tokens in prompt and output.
        ignored: ids at the beginning of each row's prompt that it does not count; empty is none.
        presence_penalty: taken from the score of each token of the output, once.
        frequency_penalty: taken from it for each time that the token was generated.
        logit_bias: `(id, value)` pairs; the value is added to the id's score, minus infinity
            forbids it.
        stop_token_ids: ids that end a row.
        n: samples of each prompt.
        processors: HF processors without an equivalent by row, which the host runs.
        criteria: HF stopping criteria, and `RowWatch`es, which the host asks.
    """

    max_new_tokens: int | None = None
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    ignored: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    n: int = 1
    processors: tuple[Any, ...] = ()
    criteria: tuple[StoppingCriteria, ...] = ()

    def rows(self, batch: int) -> list[RowParams]:
        """Returns the parameters of each of `batch` rows, as a step applies them."""
        reads_text = any(type(processor) not in PREFIX_FREE for processor in self.processors)
        ignored = self.ignored or (0,) * batch
        return [
            RowParams(self._settings(ignored[row]), self.processors, reads_text, row, batch)
            for row in range(batch)
        ]

    def _settings(self, ignored: int) -> RowSettings:
        return RowSettings(
            self.do_sample, self.temperature, self.top_k, self.top_p, self.min_p,
            self.repetition_penalty, ignored, self.presence_penalty, self.frequency_penalty,
            self.logit_bias,
        )  # fmt: skip
