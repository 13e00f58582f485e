"""`sooner.generate`: statistics, streaming and batches on top of HF's `generate`."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor
from transformers import LogitsProcessorList

from .checks import check_number
from .engine.cache import cache_of
from .engine.loop import OnTokens, Session
from .engine.runner import GRAPHS
from .engine.stats.run import Stats
from .errors import MemoryRanOutError, SoonerError, UnsupportedError, is_out_of_memory
from .methods import Method
from .methods.checks import check_inputs, check_model
from .methods.requests import OutputPenalty, refuse_assistant, refuse_cache
from .models.ranks import Ranks

if TYPE_CHECKING:
    from .engine.graphs.recorder import GraphRecorder
    from .engine.prepared import PreparedCalls
    from .options import GenerateOptions

Prefill = Callable[[Any], AbstractContextManager]
"""A sparse prefill, such as `sooner.FastV()`: called with the model, it is a context manager."""


@dataclass(frozen=True)
class Generation:
    """The outcome of `sooner.generate`.

    Attributes:
        sequences: prompt and new tokens, `[rows, width]`, padded at the end.
        tokens: the new tokens of each row, without padding.
        stats: counts and times; `stats.mode` says whether the output is exact.
    """

    sequences: Tensor
    tokens: list[list[int]]
    stats: Stats

    def __repr__(self) -> str:
        """Returns sizes instead of tensors: notebooks print what a cell ends with."""
        counts = ", ".join(str(len(row)) for row in self.tokens[:8])
        more = ", ..." if len(self.tokens) > 8 else ""
        stats = self.stats
        return (
            f"Generation({counts}{more} new tokens, {stats.tokens_per_second:.1f} tokens/s, "
            f"method={stats.method}, mode={stats.mode}, "
            f"mean_acceptance_length={stats.mean_acceptance_length:.2f})"
        )


def generate(
    model: Any,
    inputs: Mapping[str, Any],
    method: Method | str | None = None,
    *,
    prefill: Prefill | None = None,
    seed: int | None = None,
    streamer: Any = None,
    on_tokens: OnTokens | None = None,
    graphs: str | GraphRecorder = "auto",
    compile: bool | Mapping[str, Any] = False,
    **options: Unpack[GenerateOptions],
) -> Generation:
    """Returns generates with a method, and returns the tokens with statistics.

        >>> result = sooner.generate(model, inputs, sooner.PromptLookup(), max_new_tokens=256)
        >>> processor.batch_decode(result.sequences)
        >>> result.stats.mode, result.stats.mean_acceptance_length

    Args:
        model: a loaded HF model.
        inputs: what its processor returned.
        method: how to decode; plain by default. `help(sooner)` lists the methods. One that needs no
            model may be given by its name, such as `"prompt-lookup"`.
        prefill: a sparse prefill on the target for this call; what it changes makes the result
            *approximate*.
        seed: seeds every draw of this call and nothing else; `None` uses torch's global state.
        streamer: an HF streamer (one row only).
        on_tokens: called with `(row, new tokens, how many were drafted)` after each commit.
        graphs: `"auto"` captures the steps as CUDA graphs where one GPU holds the model, else
            `stats.notes` says why not; `"off"` launches every operation.
        compile: let `torch.compile` make the forwards of target and draft for each shape that steps
            have, which takes a minute or so for each; `True`, or arguments of `torch.compile`.
        options: anything that `model.generate` takes, such as `max_new_tokens`, or `stop_strings`
            with their `tokenizer`; and OpenAI's `presence_penalty` and `frequency_penalty`, which
            count what was generated. `GenerateOptions` has the list.

    Returns:
        The sequences, the new tokens of each row, and statistics, whose `mode` says whether the
        output is exact.

    Raises:
        SoonerError: the request can't be honoured.
        MemoryRanOutError: a `SoonerError`, too: what it takes, and what makes it less.
    """
    check_model("model", model)
    check_inputs(inputs)
    if not isinstance(method, Method):
        from .methods.named import as_method

        method = as_method(method)
    arguments = _with_penalties(inputs, options)
    _refuse(model, inputs, arguments, prefill)
    inputs = _without_types(model, inputs)
    ids = inputs["input_ids"]
    outputs: dict[int, list[int]] = defaultdict(list)

    def keep(row: int, tokens: list[int], drafted: int) -> None:
        outputs[row] += tokens
        if on_tokens is not None:
            on_tokens(row, tokens, drafted)

    loop = partial(
        method,
        generator=_generator(model, seed),
        on_tokens=keep,
        streamer=streamer,
        graphs=graphs,
        compile=compile,
    )
    if streamer is not None:
        streamer.put(ids.cpu())
    arguments["return_dict_in_generate"] = True
    try:
        with prefill(model) if prefill is not None else nullcontext():
            output = model.generate(**inputs, **arguments, custom_generate=loop)
    except (RuntimeError, MemoryError) as error:
        if (advice := out_of_memory(error, model, ids, arguments)) is None:
            raise
        raise advice from error
    tokens = [outputs[row] for row in range(output.sequences.shape[0])]
    return Generation(output.sequences, tokens, output.stats)


def session_of(
    model: Any,
    inputs: Mapping[str, Any],
    method: Method,
    *,
    seed: int | None = None,
    on_tokens: OnTokens | None = None,
    graphs: str | GraphRecorder = "auto",
    compile: bool | Mapping[str, Any] = False,
    generated: Sequence[int] = (),
    calls: PreparedCalls | None = None,
    **options: Any,
) -> Session:
    """Returns what `generate` would decode, set up but not begun; arguments as there.

    Pixels are encoded. Whoever takes the session closes its drafter.

    Args:
        generated: ids that the one row of `inputs` has said before. It is prefilled from them,
            too, and goes on as if it had never stopped: they count for `max_new_tokens` and
            penalties, and draws are those of the places behind them.
        calls: what is known of earlier calls with such options, and is told of this one.

    Raises:
        SoonerError: the request can't be honoured.
    """
    options = _with_penalties(inputs, options)
    _refuse(model, inputs, options, None)
    if generated:
        inputs = _continued(inputs, generated)
        if (limit := options.get("max_new_tokens")) is not None:
            options["max_new_tokens"] = limit - len(generated)
        if (min_new := options.get("min_new_tokens")) is not None:
            options["min_new_tokens"] = max(min_new - len(generated), 0)
    inputs = _without_types(model, inputs)
    settings: dict[str, Any] = {
        "generator": _generator(model, seed), "on_tokens": on_tokens, "graphs": graphs,
        "compile": compile, "generated": len(generated),
    }  # fmt: skip
    key = None
    if calls is not None:
        key = calls.key(model, inputs, method, options)
        if (known := calls.find(model, key)) is not None:
            return known.session(model, inputs, method, options["max_new_tokens"], **settings)
    sessions: list[Session] = []

    def hold(session: Session) -> list[list[int]]:
        sessions.append(session)
        return [[] for _ in range(session.rows.batch)]

    begin = partial(method, decode=hold, **settings)
    if calls is not None:
        begin = calls.watch(key, begin, inputs)
    model.generate(**inputs, **options, custom_generate=begin)
    return sessions[0]


def _continued(inputs: Mapping[str, Any], generated: Sequence[int]) -> dict[str, Any]:
    """Returns inputs of one row with ids behind its prompt, which are text whatever they are.

    Raises:
        SoonerError: there are more rows.
    """
    ids = inputs["input_ids"]
    if len(ids) != 1:
        raise SoonerError(f"generated= is for one row, and input_ids have {len(ids)}")
    more = {
        "input_ids": torch.tensor([list(generated)]),
        "attention_mask": torch.ones(1, len(generated)),
    }
    continued = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor) and value.shape == ids.shape:  # by token; kinds of text are 0
            tail = more.get(name, torch.zeros(1, len(generated))).to(value)
            continued[name] = torch.cat([value, tail], 1)
    return continued


def _with_penalties(inputs: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with the penalties that HF lacks as a processor."""
    left = dict(options)
    presence, frequency = (
        left.pop(name, None) or 0.0 for name in ("presence_penalty", "frequency_penalty")
    )
    check_number("presence_penalty", presence, -2, 2)
    check_number("frequency_penalty", frequency, -2, 2)
    if (presence or frequency) and (ids := inputs.get("input_ids")) is not None:
        penalty = OutputPenalty(presence, frequency, ids.shape[1])
        processors = left.get("logits_processor") or []
        left["logits_processor"] = LogitsProcessorList([*processors, penalty])
    return left


def _without_types(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns inputs as the model takes them.

    Qwen's processors tell which tokens are pictures (`mm_token_type_ids`), and models of their
    checkpoints' own code, which use the same processors, were written before there was that.
    """
    if "mm_token_type_ids" not in inputs or _takes_types(model.__class__):
        return inputs
    return {name: value for name, value in inputs.items() if name != "mm_token_type_ids"}


@lru_cache
def _takes_types(kind: type) -> bool:
    return "mm_token_type_ids" in inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]


def _refuse(
    model: Any, inputs: Mapping[str, Any], options: Mapping[str, Any], prefill: Prefill | None
) -> None:
    """Refuse options that `generate` would ignore, or fail at deep inside."""
    if prefill is not None and Ranks.of(model) is not None:
        raise UnsupportedError(
            "a sparse prefill looks at all heads of the target, and under tp_plan each rank holds "
            "some; leave prefill out, or use device_map instead"
        )
    if options.get("logits_processor") and model.config.model_type == "janus":
        raise UnsupportedError(
            f"{type(model).__name__}.generate drops logits_processor for text; leave it out"
        )
    if inputs.get("input_ids") is None:
        raise UnsupportedError(f"inputs have no input_ids, only {sorted(inputs)}; pass token ids")
    refuse_assistant(options.get("assistant_model"))
    refuse_cache(cache_of({**inputs, **options}))
    if options.get("generation_mode", "text") != "text":
        raise UnsupportedError(
            f"generation_mode='{options['generation_mode']}' can't be honoured; use sooner.draw"
        )
    if options.get("stop_strings") is not None and options.get("tokenizer") is None:
        raise SoonerError(f"stop_strings={options['stop_strings']!r} needs tokenizer=")
    if options.get("custom_generate") is not None:
        raise UnsupportedError("custom_generate can't be honoured beside a method; leave it out")


def out_of_memory(
    error: Exception, model: Any, ids: Tensor, options: Mapping[str, Any]
) -> MemoryRanOutError | None:
    """If memory ran out, the error to show: an estimate and a way out."""
    if not is_out_of_memory(error) or isinstance(error, MemoryRanOutError):
        return None  # the latter says itself what was too much
    if (idle := vars(model).get(GRAPHS)) is not None:
        idle.clear()  # caches and graphs that earlier calls left for later ones
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rows, slots = ids.shape[0], ids.shape[1] + (options.get("max_new_tokens") or 0)
    size = 2 * config.num_hidden_layers * heads * width * model.dtype.itemsize * rows * slots
    return MemoryRanOutError(
        f"out of memory: the cache of {rows} x {slots} tokens alone takes about "
        f"{size / 2**30:.2f} GiB; lower the number of frames, max_new_tokens or the batch"
    )


def _generator(model: Any, seed: int | None) -> torch.Generator | None:
    if seed is None:
        return None
    generator = torch.Generator(device=model.get_input_embeddings().weight.device)
    return generator.manual_seed(seed)
