"""Transformers' logits processors and stopping criteria as `SamplingParams`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import StoppingCriteria
from transformers.generation import logits_process as hf
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from ..errors import UnsupportedError
from .sampling_params import SamplingParams

REFUSED_PROCESSORS = {
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "guidance_scale runs a second model forward "
    "with a cache of its own; leave guidance_scale unset",
    "SynthIDTextWatermarkLogitsProcessor": "SynthID keeps state from call to call, which "
    "speculation would corrupt; leave watermarking_config unset",
    "WhisperNoSpeechDetection": "it runs a model of its own; decode without it",
}


def params_of(
    processors: Sequence[Any],
    criteria: Sequence[StoppingCriteria],
    width: int,
    batch: int,
    **values: Any,
) -> SamplingParams:
    """Returns HF's processors and criteria as parameters.

    Processors at the beginning and at the end of the list that have an equivalent by row, and
    stand in the order in which a step applies it, become settings; the others stay processors.

    Args:
        width: of the padded prompt, which `max_length` counts.
        batch: rows, those of `num_return_sequences` counted.
        values: further fields of `SamplingParams`.

    Raises:
        UnsupportedError: a processor keeps state that speculation would corrupt.
    """
    for processor in processors:
        if reason := REFUSED_PROCESSORS.get(type(processor).__name__):
            raise UnsupportedError(f"{type(processor).__name__} can't be honoured: {reason}")
    left, bias, is_penalised = list(processors), dict[int, float](), False
    while left and (fields := _penalty(left[0], batch)) is not None:
        forbids = all(value == -torch.inf for _, value in fields.get("logit_bias", ()))
        if is_penalised and not ("logit_bias" in fields and forbids):
            break  # a bias behind a penalty; what forbids a token does so wherever it stands
        is_penalised |= "repetition_penalty" in fields
        for token, value in fields.pop("logit_bias", ()):
            bias[token] = bias.get(token, 0.0) + value
        values |= fields
        left.pop(0)
    place = len(_WARPERS)
    while left and (at := _warper(left[-1])) is not None and at < place:
        place, processor = at, left.pop()
        values[_WARPERS[at][1]] = getattr(processor, _WARPERS[at][1])
    stop_ids: set[int] = set()
    limits: list[int] = []
    host: list[StoppingCriteria] = []
    for criterion in criteria:
        if type(criterion) is MaxLengthCriteria:
            limits.append(criterion.max_length - width)
        elif type(criterion) is EosTokenCriteria:
            stop_ids |= set(criterion.eos_token_id.tolist())
        else:
            host.append(criterion)
    if limits:
        values["max_new_tokens"] = min(limits)
    if stop_ids:
        values["stop_token_ids"] = frozenset(stop_ids)
    return SamplingParams(
        logit_bias=tuple(bias.items()), processors=tuple(left), criteria=tuple(host), **values
    )


def _penalty(processor: Any, batch: int) -> dict[str, Any] | None:
    """Returns a processor before the host's as fields of `SamplingParams`, if it has such."""
    if type(processor) in (hf.SequenceBiasLogitsProcessor, hf.NoBadWordsLogitsProcessor):
        values = [(ids, float(value)) for ids, value in processor.sequence_bias.items()]
        if any(len(ids) != 1 for ids, _ in values):
            return None
        return {"logit_bias": [(int(ids[0]), value) for ids, value in values]}
    if type(processor) is hf.SuppressTokensLogitsProcessor:
        return {"logit_bias": [(id_, -torch.inf) for id_ in processor.suppress_tokens.tolist()]}
    if type(processor) is hf.RepetitionPenaltyLogitsProcessor:
        ignored = getattr(processor, "prompt_ignore_length", None)
        if isinstance(ignored, int):  # before transformers 5.23 it is one number for all rows
            ignored = torch.full((batch,), ignored)
        if ignored is not None and len(ignored) != batch:
            return None
        rows = () if ignored is None else tuple(ignored.tolist())
        return {"repetition_penalty": processor.penalty, "ignored": rows}
    return None


_WARPERS = (
    (hf.TemperatureLogitsWarper, "temperature"),
    (hf.TopKLogitsWarper, "top_k"),
    (hf.TopPLogitsWarper, "top_p"),
    (hf.MinPLogitsWarper, "min_p"),
)


def _warper(processor: Any) -> int | None:
    """Returns where a processor behind the host's stands, if it has an equivalent by row."""
    keeps = getattr(processor, "min_tokens_to_keep", 1)
    if getattr(processor, "filter_value", -torch.inf) != -torch.inf or keeps != 1:
        return None
    return next((at for at, (kind, _) in enumerate(_WARPERS) if type(processor) is kind), None)


def foreign_names(processors: Sequence[Any]) -> list[str]:
    """Returns names of processors that are neither transformers' nor this package's own, and of
    functions that one of transformers' calls: whether they keep a state is not known.
    """
    names = set()
    for processor in processors:
        calls_back = type(processor) is hf.PrefixConstrainedLogitsProcessor
        home = type(processor).__module__.partition(".")[0]
        if calls_back or home not in ("transformers", "sooner"):
            names.add(getattr(processor, "__name__", type(processor).__name__))
    return sorted(names)
