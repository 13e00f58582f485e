"""What HF's `generate` makes of a request's options, kept for later requests that ask for the same.

`generate` merges configs, validates them and reads signatures anew in every call, which takes as
long as a step of a small model. What comes of it depends on the options, on the names of the inputs
and on the model's own config, and on nothing else as long as the options are parameters of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin, StoppingCriteria, StoppingCriteriaList
from transformers.generation import logits_process as hf
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from ..methods import Method
from ..methods.calls import prompt_inputs
from .loop import Session

OF_ROWS = {
    "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "eos_token_id",
    "prefill_chunk_size", "max_new_tokens",
}  # fmt: skip
"""Options that may be known; a call with any other is prepared by `generate`."""

STATELESS = (
    hf.RepetitionPenaltyLogitsProcessor,
    hf.TemperatureLogitsWarper,
    hf.TopKLogitsWarper,
    hf.TopPLogitsWarper,
    hf.MinPLogitsWarper,
    hf.SuppressTokensLogitsProcessor,
)
"""Processors that are the same whatever the prompt."""

MAX_CALLS = 64
"""Ways to ask that are kept; clients may send any temperature."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class PreparedCall:
    """What `generate` handed to its loop, but for the inputs and the limit."""

    processors: Any
    ends: tuple[StoppingCriteria, ...]
    do_sample: bool
    prefill_chunk: int | None

    def session(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        method: Method,
        max_new_tokens: int,
        **options: Any,
    ) -> Session:
        """Returns what `Method.__call__` would set up.

        Args:
            inputs: what the model's processor returned, of one row.
            options: of `Method.session`.
        """
        named = {name: value for name, value in inputs.items() if value is not None}
        if bool((named["attention_mask"] == 1).all()):
            del named["attention_mask"]
        width = named["input_ids"].shape[1]
        criteria = StoppingCriteriaList([MaxLengthCriteria(width + max_new_tokens), *self.ends])
        with torch.no_grad():
            return method.session(
                model, named, processors=self.processors, criteria=criteria,
                do_sample=self.do_sample, prefill_chunk=self.prefill_chunk, **options,
            )  # fmt: skip


class PreparedCalls:
    """Calls of one model's `generate` by what they ask for; the oldest go first."""

    def __init__(self) -> None:
        self._calls: dict[Key, PreparedCall | None] = {}
        self._config: dict[str, Any] = {}  # the model's, when they were prepared

    def key(
        self, model: Any, inputs: Mapping[str, Any], method: Method, options: Mapping[str, Any]
    ) -> Key | None:
        """Returns what tells calls apart; `None` for those that only `generate` can prepare."""
        ids, limit = inputs.get("input_ids"), options.get("max_new_tokens")
        if (
            not OF_ROWS.issuperset(options)
            or type(limit) is not int or limit < 1
            or ids is None or len(ids) != 1 or inputs.get("attention_mask") is None
            or type(model).generate is not GenerationMixin.generate
            or type(method).__call__ is not Method.__call__
        ):  # fmt: skip
            return None
        settings = {name: value for name, value in options.items() if name != "max_new_tokens"}
        if isinstance(ends := settings.get("eos_token_id"), list):
            settings["eos_token_id"] = tuple(ends)
        key = (tuple(sorted(inputs)), *sorted(settings.items()))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def find(self, model: Any, key: Key | None) -> PreparedCall | None:
        """Returns the call that was prepared for a key, if it can serve others."""
        if (config := vars(model.generation_config)) != self._config:  # somebody changed it
            self._calls, self._config = {}, copy.deepcopy(config)
        return None if key is None else self._calls.get(key)

    def watch(self, key: Key | None, begin: Callable[..., Any], inputs: Mapping[str, Any]) -> Any:
        """`begin`, a loop for `generate` of which is kept what it is handed."""
        if key is None or key in self._calls:
            return begin

        def watched(model: Any, input_ids: torch.Tensor, **handed: Any) -> Any:
            while len(self._calls) >= MAX_CALLS:
                del self._calls[next(iter(self._calls))]
            self._calls[key] = _call_of(input_ids, handed, inputs)
            return begin(model, input_ids, **handed)

        watched.__wrapped__ = begin  # type: ignore[attr-defined]  # whose signature is read
        return watched


def _call_of(
    input_ids: torch.Tensor, handed: Mapping[str, Any], inputs: Mapping[str, Any]
) -> PreparedCall | None:
    """Returns what can be kept of what a loop was handed; `None` if it depends on the prompt."""
    left = dict(handed)
    processors, criteria = left.pop("logits_processor"), left.pop("stopping_criteria")
    config: GenerationConfig = left.pop("generation_config")
    arguments = {name: left[name] for name in inputs if name in left}
    mask = inputs["attention_mask"]
    made = prompt_inputs(
        input_ids, arguments, {n: v for n, v in left.items() if n not in arguments}, 1
    )
    expected = {name: value for name, value in inputs.items() if value is not None}
    if arguments.get("attention_mask") is None and bool((mask == 1).all()):
        del expected["attention_mask"]
    made = {name: value for name, value in made.items() if value is not None}
    if made.keys() != expected.keys() or any(made[name] is not expected[name] for name in made):
        return None
    if (config.num_return_sequences or 1) > 1 or any(type(o) not in STATELESS for o in processors):
        return None
    if not criteria or type(criteria[0]) is not MaxLengthCriteria:
        return None
    if any(type(criterion) is not EosTokenCriteria for criterion in criteria[1:]):
        return None
    return PreparedCall(
        processors, tuple(criteria[1:]), bool(config.do_sample), config.prefill_chunk_size
    )
