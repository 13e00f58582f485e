"""The border to transformers: the one module that knows how `generate` prepares a call.

A call comes in by two ways. `prepare` is for `sooner.generate` and `sooner.Engine`: it asks
transformers' own (private) helpers what the options mean. `receive` is for
`model.generate(custom_generate=method)`, where transformers has asked them already and calls the
method with what came of it. Behind the border there are inputs and `SamplingParams` alone.

Tested with transformers 5.17, 5.23 and 5.24.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.generation import logits_process as hf
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from ..checks import check_number, check_whole
from ..errors import SoonerError, UnsupportedError
from .interface import CACHE_NAMES, cache_of
from .loop import OnTokens
from .row_sampling import SamplingParams

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

CACHES = (None, "dynamic", "static", "offloaded")
"""Cache kinds that only say where the same keys and values are kept."""

LOOP_ONLY = ("use_cache", "logits_to_keep", "position_ids", *CACHE_NAMES, "cache_position")
"""Arguments that `generate` prepares for its own loop."""

MADE_BY_GENERATE = {
    "input_ids", "inputs_embeds", "attention_mask", *LOOP_ONLY, "labels", "return_dict",
    "output_attentions", "output_hidden_states", "output_router_logits", "mm_encoder_outputs",
    "encoder_outputs",
}  # fmt: skip
"""Arguments of a model's forward that `generate` makes or reads itself."""


@dataclass(frozen=True)
class Call:
    """Holds a `generate` call behind the border.

    Attributes:
        inputs: prompts as the model's forward takes them, pixels raw, one row for each prompt.
        params: how tokens are chosen, and when rows end.
        prefill_chunk: prompt tokens of one prefill forward; `None` is all of them.
        kv_offload: keys and values lie in host memory.
        pad: fills the rows of the answer that ended early.
    """

    inputs: dict[str, Any]
    params: SamplingParams
    prefill_chunk: int | None
    kv_offload: bool
    pad: int

    def sequences(self, new: Sequence[Sequence[int]]) -> Tensor:
        """Returns prompts and new tokens as `generate` does, `[rows, width]`, padded at the end."""
        ids = self.inputs["input_ids"].repeat_interleave(self.params.n, 0)
        longest = max(len(row) for row in new)
        padded = [[*row, *[self.pad] * (longest - len(row))] for row in new]
        return torch.cat([ids, torch.tensor(padded, dtype=torch.long, device=ids.device)], 1)


def prepare(model: Any, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Call:
    """Returns what `model.generate(**inputs, **options)` would hand to its loop.

    Args:
        inputs: what the model's processor returned.
        options: arguments of `generate`, and OpenAI's `presence_penalty` and `frequency_penalty`.

    Raises:
        SoonerError: an option can't be honoured.
        ValueError: transformers refuses an option, in its own words.
    """
    _refuse_arguments(model, inputs, options)
    left = dict(options)
    presence, frequency = (
        left.pop(name, None) or 0.0 for name in ("presence_penalty", "frequency_penalty")
    )
    check_number("presence_penalty", presence, -2, 2)
    check_number("frequency_penalty", frequency, -2, 2)
    tokenizer = left.pop("tokenizer", None)
    given: GenerationConfig | None = left.pop("generation_config", None)
    synced_gpus = bool(left.pop("synced_gpus", None))
    processors = left.pop("logits_processor", None) or LogitsProcessorList()
    criteria = left.pop("stopping_criteria", None) or StoppingCriteriaList()
    host = {
        name: left.pop(name, None)
        for name in (
            "prefix_allowed_tokens_fn", "negative_prompt_ids", "negative_prompt_attention_mask"
        )
    }  # fmt: skip
    for name in ("generation_mode", "assistant_model", "assistant_tokenizer", "custom_generate"):
        left.pop(name, None)
    ids: Tensor = inputs["input_ids"]
    by_default = {
        name: all(
            getattr(source, name, None) is None for source in (given, model.generation_config)
        )
        and left.get(name) is None
        for name in ("max_length", "min_length")
    }
    config, kwargs = model._prepare_generation_config(given, **left)
    named = {**_known(model, inputs), **kwargs}
    model._validate_model_kwargs(dict(named))
    refuse_config(config, synced_gpus)
    has_mask = named.get("attention_mask") is not None
    model._prepare_special_tokens(config, has_mask, device=ids.device, batch_size=len(ids))
    named = {"input_ids": ids, **_model_inputs(named, ids)}
    if not has_mask and _takes(model.__class__, "attention_mask"):
        named["attention_mask"] = model._prepare_attention_mask_for_generation(ids, config, named)
    mask, copies = named.get("attention_mask"), config.num_return_sequences or 1
    if mask is not None and bool((mask == 1).all()):
        del named["attention_mask"]
        mask = None
    expanded = {} if mask is None else {"attention_mask": mask.repeat_interleave(copies, 0)}
    if config.token_healing:
        named["input_ids"] = ids = model.heal_tokens(ids, tokenizer)
    width = ids.shape[1]
    config = model._prepare_generated_length(
        generation_config=config, has_default_max_length=by_default["max_length"],
        has_default_min_length=by_default["min_length"], model_input_name="input_ids",
        inputs_tensor=ids, input_ids_length=width,
    )  # fmt: skip
    model._validate_generated_length(config, width, by_default["max_length"])
    made = model._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=width,
        encoder_input_ids=ids,
        logits_processor=processors,
        device=ids.device,
        model_kwargs={**named, **expanded},  # processors see a row for each sample
        **host,
    )
    ends = model._get_stopping_criteria(
        generation_config=config, stopping_criteria=criteria, tokenizer=tokenizer
    )
    params = params_of(
        made, ends, width, len(ids) * copies, do_sample=bool(config.do_sample), n=copies,
        presence_penalty=presence, frequency_penalty=frequency,
    )  # fmt: skip
    return _call(named, params, config)


def receive(
    model: Any, input_ids: Tensor, processors: Sequence[Any] | None,
    criteria: Sequence[StoppingCriteria] | None, config: GenerationConfig, synced_gpus: bool,
    kwargs: Mapping[str, Any],
) -> Call:  # fmt: skip
    """Returns what `generate` handed to a custom loop.

    Args:
        input_ids: `[rows, width]`; under `num_return_sequences` each prompt is repeated.
        kwargs: the model's inputs, those that `model_arguments` names as the caller gave them.
    """
    refuse_config(config, synced_gpus)
    n = config.num_return_sequences or 1
    raw = {
        name: value
        for name, value in kwargs.items()
        if name in model_arguments(model) and value is not None
    }
    left = {name: value for name, value in kwargs.items() if name not in model_arguments(model)}
    # `generate` has repeated all it knows of, but it never saw the pixels: one prompt of each
    # group is kept, and repeated once it is embedded.
    inputs = {
        name: value[::n] if n > 1 and isinstance(value, Tensor) else value
        for name, value in {"input_ids": input_ids, **_model_inputs(left, input_ids)}.items()
    }
    params = params_of(
        processors or (), criteria or (), input_ids.shape[1], len(input_ids),
        do_sample=bool(config.do_sample), n=n,
    )  # fmt: skip
    return _call({**inputs, **raw}, params, config)


def refuse_config(config: GenerationConfig, synced_gpus: bool = False) -> None:
    """Refuse what a generation config asks for and the loop can't do.

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
            f"cache_implementation='{config.cache_implementation}' can't be honoured: keys and "
            "values lie in slots; leave it unset, or pass 'offloaded' for slots in host memory"
        )
    if synced_gpus:
        raise UnsupportedError("synced_gpus=True can't be honoured: rows end on their own")


def _refuse_arguments(model: Any, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse arguments that `generate` would ignore, or fail at deep inside."""
    if options.get("logits_processor") and model.config.model_type == "janus":
        raise UnsupportedError(
            f"{type(model).__name__}.generate drops logits_processor for text; leave it out"
        )
    if inputs.get("input_ids") is None:
        raise UnsupportedError(f"inputs have no input_ids, only {sorted(inputs)}; pass token ids")
    _refuse_assistant(options.get("assistant_model"))
    _refuse_cache(cache_of({**inputs, **options}))
    if (mode := options.get("generation_mode", "text")) != "text":
        raise UnsupportedError(f"generation_mode='{mode}' can't be honoured; use sooner.draw")
    if options.get("stop_strings") is not None and options.get("tokenizer") is None:
        raise SoonerError(f"stop_strings={options['stop_strings']!r} needs tokenizer=")
    if options.get("custom_generate") is not None:
        raise UnsupportedError("custom_generate can't be honoured beside a method; leave it out")


def _refuse_assistant(assistant: Any) -> None:
    """Refuse HF's assistant model beside a method, which drafts itself."""
    if assistant is not None:
        raise UnsupportedError(
            "assistant_model can't be honoured beside a method; use sooner.Speculative(draft)"
        )


def _refuse_cache(cache: Any) -> None:
    """Refuse a cache of the caller's own, which HF's loop would leave filled."""
    if cache is None:
        return
    count = cache.get_seq_length()
    reason = (
        f"with {count} tokens can't be honoured: decoding starts from the whole prompt" if count
        else "can't be honoured: keys and values stay in slots of the run, and it would stay empty"
    )  # fmt: skip
    raise UnsupportedError(f"a cache {reason}; leave it out")


def _model_inputs(kwargs: Mapping[str, Any], input_ids: Tensor) -> dict[str, Any]:
    """Returns the model's inputs among `kwargs`, without those of HF's own loop.

    Raises:
        UnsupportedError: a cache that already holds tokens, embeddings instead of ids, or
            position ids of the caller's own.
    """
    if (cache := cache_of(kwargs)) is not None and cache.get_seq_length() > 0:
        _refuse_cache(cache)
    if kwargs.get("inputs_embeds") is not None:
        raise UnsupportedError("inputs_embeds can't be honoured: pass input_ids")
    _refuse_positions(kwargs.get("position_ids"), kwargs.get("attention_mask"), input_ids)
    return {
        name: value
        for name, value in kwargs.items()
        if name not in (*LOOP_ONLY, "input_ids")
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


def _known(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns inputs as the model takes them.

    Qwen's processors tell which tokens are pictures (`mm_token_type_ids`), and models of their
    checkpoints' own code, which use the same processors, were written before there was that.
    """
    types = "mm_token_type_ids"
    drops = types in inputs and not _takes(model.__class__, types)
    return {name: value for name, value in inputs.items() if not (drops and name == types)}


@lru_cache(maxsize=64)
def _takes(kind: Any, name: str) -> bool:
    """Returns whether a model's forward has an argument of that name."""
    return name in inspect.signature(kind.forward).parameters


def _call(inputs: dict[str, Any], params: SamplingParams, config: GenerationConfig) -> Call:
    if (chunk := config.prefill_chunk_size) is not None:
        check_whole("prefill_chunk_size", chunk, hint=", or None to prefill the prompt at once")
    pad, eos = config.pad_token_id, config.eos_token_id
    pad = pad if pad is not None else eos[0] if isinstance(eos, list) else eos or 0
    return Call(inputs, params, chunk, config.cache_implementation == "offloaded", int(pad))


def model_arguments(model: Any) -> frozenset[str]:
    """Returns what a model's forward and its pixels' encoders take beside `MADE_BY_GENERATE`.

    `generate` hands these to a method as they came. It would encode pixels first; but the draft
    needs them raw, and vision time belongs into the statistics.
    """
    body = getattr(model, "base_model", None)
    makers = [getattr(body, f"get_{kind}_features", None) for kind in ("image", "video")]
    return _names(
        *(getattr(function, "__func__", function) for function in (model.forward, *makers))
    )


@lru_cache(maxsize=64)
def _names(*functions: Any) -> frozenset[str]:
    return frozenset(
        parameter.name
        for function in functions
        if function is not None
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in {*MADE_BY_GENERATE, "self"}
    )


class CallSignature:
    """The signature of a method's call: its own, and `model_arguments` of the model that runs it.

    `generate` reads it to know which arguments it hands over as they came. Up to transformers
    5.24 it says nowhere for which model it reads, and takes a tokenizer out of the arguments
    before: both are read from its frame.
    """

    def __get__(self, method: Any, kind: type) -> inspect.Signature:
        if method is None:
            raise AttributeError("__signature__")  # the class has that of its constructor
        signature = inspect.signature(kind.__call__)
        _, *parameters = signature.parameters.values()
        call = _frame_of("_extract_generation_mode_kwargs")
        tokenizer = call.get("generation_mode_kwargs", {}).get("tokenizer")
        if tokenizer is not None:  # stop strings and token healing need it
            call["kwargs"].setdefault("tokenizer", tokenizer)
        known = {parameter.name for parameter in parameters}
        arguments = model_arguments(call["self"]) if "self" in call else frozenset()
        for name in sorted(arguments - known):
            extra = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
            parameters.insert(-1, extra)
        return signature.replace(parameters=parameters)


def streamer_of(model: Any) -> Any:
    """Returns the streamer given to the `generate` call that runs a custom loop.

    Up to transformers 5.24 `generate` hands a custom loop neither its streamer nor its assistant.

    Raises:
        UnsupportedError: the call has an assistant model or a cache, which would not be used.
    """
    call = _frame_of(GenerationMixin.generate.__name__, model, depth=5)
    _refuse_assistant(call.get("assistant_model"))
    _refuse_cache(cache_of(call.get("kwargs", {})))
    return call.get("streamer")


def _frame_of(function: str, model: Any = None, depth: int = 100) -> Mapping[str, Any]:
    """Returns the variables of the nearest call of a function of `generate`'s; none without one."""
    frame: Any = sys._getframe(2)
    for _ in range(depth):
        if frame is None:
            break
        if frame.f_code.co_name == function and model in (None, frame.f_locals.get("self")):
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def on_tokens_of(streamer: Any, rows: int, on_tokens: OnTokens | None) -> OnTokens | None:
    """Returns one callback for a streamer and the caller's own; `None` without either.

    Raises:
        UnsupportedError: there is more than one row.
    """
    if streamer is None:
        return on_tokens
    if rows > 1:
        raise UnsupportedError(
            f"a streamer can't follow {rows} rows of different length; use sooner.generate with "
            "on_tokens"
        )

    def put(row: int, tokens: list[int], drafted: int) -> None:
        for token in tokens:
            streamer.put(torch.tensor([token]))
        if on_tokens is not None:
            on_tokens(row, tokens, drafted)

    return put


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
