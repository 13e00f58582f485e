"""What a `generate` call may ask for, and what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor
from transformers.generation import logits_process as hf

from ..checks import check_whole
from ..engine.cache import CACHE_NAMES, cache_of
from ..engine.interface import AdapterLike
from ..engine.rows import RowSettings
from ..engine.sampling import RowParams
from ..errors import SoonerError, UnsupportedError
from ..models.base import keeps_states
from ..models.ranks import Ranks

REFUSED = {
    "penalty_alpha": "contrastive search ranks by hidden states",
    "dola_layers": "DoLa reads intermediate layers",
    "constraints": "constrained search needs beams",
    "force_words_ids": "constrained search needs beams",
    "output_attentions": "attention maps of drafts that were rejected would be mixed in",
    "output_hidden_states": "states of drafts that were rejected would be mixed in",
    "output_scores": "scores are not kept",
    "output_logits": "logits are not kept",
    "assistant_early_exit": "use sooner.Speculative with a draft model",
    "prompt_lookup_num_tokens": "use sooner.PromptLookup",
    "use_mtp": "multi-token-prediction heads are not used",
}
"""Options that change the output, or what is returned, and why they can't be honoured."""

CACHES = (None, "dynamic", "static")
"""Cache kinds that only say where the same keys and values are kept."""

LOOP_ONLY = ("use_cache", "logits_to_keep", "position_ids", *CACHE_NAMES, "cache_position")
"""Arguments that `generate` prepared for its own loop."""


def check_states(method: Any, target: AdapterLike) -> None:
    """Require a method to draft chains alone if its target or its draft keeps states.

    Raises:
        UnsupportedError: it does otherwise, or the target is split by tensor parallelism; says
            what to use.
    """
    for model in (target.model, getattr(method, "draft", None)):
        if not keeps_states(model):
            continue
        name = type(getattr(model, "model", None) or model).__name__
        if not method.drafts_chains:
            raise UnsupportedError(
                f"{type(method).__name__} may draft trees or rearrange a cache, and layers of "
                f"{name} keep a state, which takes chains alone; use Autoregressive, "
                "PromptLookup or Speculative"
            )
        if Ranks.of(target.model) is not None:
            raise UnsupportedError(
                f"layers of {name} keep a state, which tensor parallelism is not known to split; "
                "load it on one device"
            )


def refuse_config(config: GenerationConfig, synced_gpus: bool = False) -> None:
    """Refuse what a generation config asks for and this loop can't do.

    Raises:
        UnsupportedError: names the option, its value and the reason.
    """
    if (config.num_beams or 1) > 1:
        raise UnsupportedError(
            f"num_beams={config.num_beams} can't be honoured: speculation follows one sequence a "
            "row; set num_beams=1"
        )
    for name, reason in REFUSED.items():
        if value := getattr(config, name, None):
            raise UnsupportedError(f"{name}={value!r} can't be honoured: {reason}; leave it unset")
    if config.use_cache is False:
        raise UnsupportedError("use_cache=False can't be honoured: drafts live in the cache")
    if config.cache_implementation not in CACHES:
        raise UnsupportedError(
            f"cache_implementation='{config.cache_implementation}' can't be honoured: the slot "
            "cache is used; leave it unset"
        )
    if synced_gpus:
        raise UnsupportedError("synced_gpus=True can't be honoured: rows end on their own")


def refuse_assistant(assistant: Any) -> None:
    """Refuse HF's assistant model beside a method, which drafts itself.

    Raises:
        UnsupportedError: there is one.
    """
    if assistant is not None:
        raise UnsupportedError(
            "assistant_model can't be honoured beside a method; use sooner.Speculative(draft)"
        )


def refuse_cache(cache: Any) -> None:
    """Refuse a cache of the caller's own, which HF's loop would leave filled.

    Raises:
        UnsupportedError: there is one.
    """
    if cache is None:
        return
    count = cache.get_seq_length()
    reason = (
        f"with {count} tokens can't be honoured: decoding starts from the whole prompt" if count
        else "can't be honoured: keys and values stay in slots of the run, and it would stay empty"
    )  # fmt: skip
    raise UnsupportedError(f"a cache {reason}; leave it out")


def refuse_empty(inputs: Mapping[str, Any]) -> None:
    """Refuse prompts without a token.

    Raises:
        SoonerError: names the row.
    """
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    if not ids.shape[0]:
        raise SoonerError("input_ids hold no prompt; give at least one")
    sizes = [ids.shape[1]] * ids.shape[0] if mask is None else mask.sum(1).tolist()
    if 0 in sizes:
        raise SoonerError(
            f"the prompt of row {sizes.index(0)} is empty; give it at least one token"
        )


def check_chunk(size: Any) -> None:
    """Require `size`, the config's `prefill_chunk_size`, to be a number of tokens or `None`.

    Raises:
        SoonerError: names the value.
    """
    if size is not None:
        hint = ", or None to prefill the prompt at once"
        check_whole("prefill_chunk_size", size, hint=hint)


def refuse_inputs(model_kwargs: dict[str, Any], input_ids: Tensor) -> dict[str, Any]:
    """The model inputs among `model_kwargs`.

    Raises:
        UnsupportedError: a cache that already holds tokens, embeddings instead of ids, or
            position ids of the caller's own.
    """
    if (cache := cache_of(model_kwargs)) is not None and cache.get_seq_length() > 0:
        refuse_cache(cache)
    if model_kwargs.get("inputs_embeds") is not None:
        raise UnsupportedError("inputs_embeds can't be honoured: pass input_ids")
    _refuse_positions(
        model_kwargs.get("position_ids"), model_kwargs.get("attention_mask"), input_ids
    )
    return {
        name: value
        for name, value in model_kwargs.items()
        if name not in LOOP_ONLY
        and value is not None
        and not (isinstance(value, dict) and not value)
    }


def _refuse_positions(positions: Tensor | None, mask: Tensor | None, input_ids: Tensor) -> None:
    """1-D positions must be the ones that the mask implies; M-RoPE ones are computed anew."""
    if positions is None or positions.ndim != 2:
        return
    mask = torch.ones_like(input_ids) if mask is None else mask
    implied = (mask.cumsum(-1) - 1).to(positions.device)
    if bool(((positions != implied) & mask.bool().to(positions.device)).any()):
        raise UnsupportedError(
            "position_ids other than 0, 1, 2, ... can't be honoured; leave them out"
        )


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

REFUSED_PROCESSORS = {
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "guidance_scale runs a second model forward "
    "with a cache of its own; leave guidance_scale unset",
    "SynthIDTextWatermarkLogitsProcessor": "SynthID keeps state from call to call, which "
    "speculation would corrupt; leave watermarking_config unset",
    "WhisperNoSpeechDetection": "it runs a model of its own; decode without it",
}


class OutputPenalty(LogitsProcessor):
    """OpenAI's presence and frequency penalties: they lower what a row has said, not its prompt.

    Args:
        presence: taken from the score of each token said, once.
        frequency: taken from it for each time that it was said.
        width: ids of the padded prompt.
    """

    def __init__(self, presence: float, frequency: float, width: int) -> None:
        self.presence, self.frequency, self.width = presence, frequency, width

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        generated = input_ids[:, self.width :]
        counts = torch.zeros_like(scores).scatter_add_(
            1, generated, torch.ones_like(generated).to(scores)
        )
        return scores - self.frequency * counts - self.presence * (counts > 0)


def foreign_names(processors: Sequence[Any]) -> list[str]:
    """Returns names of processors that are neither transformers' nor this package's own, and of
    functions that one of transformers' calls: whether they keep a state is not known.
    """
    names = set()
    for processor in processors:
        calls_back = type(processor) is hf.PrefixConstrainedLogitsProcessor
        if calls_back or type(processor).__module__.partition(".")[0] not in (
            "transformers",
            "sooner",
        ):
            names.add(getattr(processor, "__name__", type(processor).__name__))
    return sorted(names)


def row_params(processors: Sequence[Any], draws: bool, batch: int) -> list[RowParams]:
    """Returns what HF's `processors` ask for each of `batch` rows.

    Those at the beginning and at the end of the list that have an equivalent by row, and stand
    in the order in which a step applies it, become settings; the rest stays between the two.

    Raises:
        UnsupportedError: a processor keeps state that speculation would corrupt.
    """
    for processor in processors:
        if reason := REFUSED_PROCESSORS.get(type(processor).__name__):
            raise UnsupportedError(f"{type(processor).__name__} can't be honoured: {reason}")
    left, options = list(processors), {"draws": draws}
    bias: dict[int, float] = {}
    ignored, place = [0] * batch, -1
    while left and (penalty := _penalty(left[0], batch)) is not None:
        at, values = penalty
        if at is not None and at <= place:
            break
        place = place if at is None else at  # what forbids a token does so wherever it stands
        for token, value in values.pop("bias", ()):
            bias[token] = bias.get(token, 0.0) + value
        ignored = values.pop("ignored", ignored)
        options |= values
        left.pop(0)
    place = len(_WARPERS)
    while left and (at := _warper(left[-1])) is not None and at < place:
        place, processor = at, left.pop()
        options |= {_WARPERS[at][1]: getattr(processor, _WARPERS[at][1])}
    settings = RowSettings(**options, bias=tuple(bias.items()))
    host, every = tuple(left), tuple(processors)
    reads_text = any(type(processor) not in PREFIX_FREE for processor in host)
    return [
        RowParams(replace(settings, ignored=ignored[row]), host, reads_text, every, row, batch)
        for row in range(batch)
    ]


def _penalty(processor: Any, batch: int) -> tuple[int | None, dict[str, Any]] | None:
    """Returns where a processor that comes before the host's stands (anywhere: `None`), and what it
    is as `RowSettings`; nothing if it has no equivalent by row.
    """
    if type(processor) in (hf.SequenceBiasLogitsProcessor, hf.NoBadWordsLogitsProcessor):
        values = [(ids, float(value)) for ids, value in processor.sequence_bias.items()]
        if any(len(ids) != 1 for ids, _ in values):
            return None
        forbids = all(value == -torch.inf for _, value in values)
        return None if forbids else 0, {"bias": [(int(ids[0]), value) for ids, value in values]}
    if type(processor) is hf.SuppressTokensLogitsProcessor:
        return None, {"bias": [(token, -torch.inf) for token in processor.suppress_tokens.tolist()]}
    if type(processor) is hf.RepetitionPenaltyLogitsProcessor:
        ignored = getattr(processor, "prompt_ignore_length", None)
        if ignored is not None and (isinstance(ignored, int) or len(ignored) != batch):
            return None
        whose = [0] * batch if ignored is None else ignored.tolist()
        return 1, {"repetition": processor.penalty, "ignored": whose}
    if type(processor) is OutputPenalty:
        return 2, {"presence": processor.presence, "frequency": processor.frequency}
    return None


_WARPERS = (
    (hf.TemperatureLogitsWarper, "temperature"),
    (hf.TopKLogitsWarper, "top_k"),
    (hf.TopPLogitsWarper, "top_p"),
    (hf.MinPLogitsWarper, "min_p"),
)


def _warper(processor: Any) -> int | None:
    """Returns where a processor that comes behind the host's stands, if it has an equivalent by
    row.
    """
    keeps = getattr(processor, "min_tokens_to_keep", 1)
    if getattr(processor, "filter_value", -torch.inf) != -torch.inf or keeps != 1:
        return None
    return next((at for at, (kind, _) in enumerate(_WARPERS) if type(processor) is kind), None)
