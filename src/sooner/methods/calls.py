"""The two ends of a `generate` call: what it hands to its loop, and what it wants back."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from ..engine.cache import CACHE_NAMES, cache_of
from ..engine.loop import OnTokens
from ..errors import UnsupportedError
from .requests import refuse_assistant, refuse_cache, refuse_inputs


def to_device(inputs: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Returns the same inputs with every tensor on `device`."""
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }


GENERATED = {
    "input_ids", "inputs_embeds", "attention_mask", "position_ids", *CACHE_NAMES, "use_cache",
    "cache_position", "labels", "logits_to_keep", "return_dict", "output_attentions",
    "output_hidden_states", "output_router_logits", "mm_encoder_outputs", "encoder_outputs",
}  # fmt: skip
"""Arguments of a model's forward that `generate` makes or reads itself."""


def model_arguments(model: Any) -> frozenset[str]:
    """Names of what a model's forward, and the encoders of its pixels, take beside `GENERATED`.

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
        and parameter.name not in {*GENERATED, "self"}
    )


class CallSignature:
    """The signature of a method's call: its own, and `model_arguments` of the model that runs it.

    `generate` reads it to know which arguments it hands over; the model is the one whose call this
    is, as `streamer_of_caller` finds it.
    """

    def __get__(self, method: Any, kind: type) -> inspect.Signature:
        if method is None:
            raise AttributeError("__signature__")  # the class has that of its constructor
        signature = inspect.signature(kind.__call__)
        _, *names = signature.parameters.values()
        call = _call_of_generate()
        _restore_tokenizer(call)
        known = {parameter.name for parameter in names}
        arguments = model_arguments(call["self"]) if "self" in call else frozenset()
        for name in sorted(arguments - known):
            names.insert(-1, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None))
        return signature.replace(parameters=names)


def _call_of_generate() -> Mapping[str, Any]:
    """Returns the variables of the `generate` call that reads a signature; none if nobody's
    does.
    """
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_extract_generation_mode_kwargs":
            return frame.f_locals
        frame = frame.f_back
    return {}


def _restore_tokenizer(call: Mapping[str, Any]) -> None:
    """Put a `generate` call's tokenizer back among its arguments.

    `generate` takes it out before it reads a custom loop's signature, and up to transformers 5.23
    drops it then, though stop strings and token healing need it. A loop that has an argument of
    that name is handed what is among the arguments now.
    """
    tokenizer = call.get("generation_mode_kwargs", {}).get("tokenizer")
    if tokenizer is not None:
        call["kwargs"].setdefault("tokenizer", tokenizer)


def prompt_inputs(
    input_ids: Tensor, pixels: dict[str, Tensor], model_kwargs: dict[str, Any], copies: int
) -> dict[str, Any]:
    """Returns the prompts as the model's forward takes them, without what belongs to HF's own loop.

    Under `num_return_sequences` `generate` has repeated all it knows of, but it never saw the
    pixels: one prompt of each group is kept, and repeated once it is embedded.
    """
    rest = {"input_ids": input_ids, **refuse_inputs(model_kwargs, input_ids)}
    if copies > 1:
        rest = {
            name: value[::copies] if isinstance(value, Tensor) else value
            for name, value in rest.items()
        }
    return {**rest, **pixels}


def streamer_of_caller(model: Any) -> Any:
    """Returns the streamer given to the `generate` call that called the method.

    Up to transformers 5.23 `generate` hands a custom loop everything but its mode arguments, the
    streamer among them, so they are read from the caller's frame.

    Raises:
        UnsupportedError: the call has an assistant model or a cache, which nobody would use.
    """
    frame = sys._getframe(1)
    for _ in range(3):
        frame = frame.f_back if frame is not None else None  # type: ignore[assignment]
        if frame is None:
            return None
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is model:
            refuse_assistant(frame.f_locals.get("assistant_model"))
            refuse_cache(cache_of(frame.f_locals.get("kwargs", {})))
            return frame.f_locals.get("streamer")
    return None


def tell_both(streamer: Any, on_tokens: OnTokens | None, rows: int) -> OnTokens | None:
    """Returns one callback for the streamer and the caller's own."""
    if streamer is None:
        return on_tokens
    if rows > 1:
        raise UnsupportedError(
            f"a streamer can't follow {rows} rows of different length; use sooner.generate with "
            "on_tokens"
        )
    put: Callable[[Tensor], None] = streamer.put

    def tell(row: int, tokens: list[int], drafted: int) -> None:
        for token in tokens:
            put(torch.tensor([token]))
        if on_tokens is not None:
            on_tokens(row, tokens, drafted)

    return tell


def pad_id(config: GenerationConfig) -> int:
    pad = config.pad_token_id
    if pad is None:
        eos = config.eos_token_id
        pad = eos[0] if isinstance(eos, list) else eos
    return 0 if pad is None else int(pad)


def padded_sequences(input_ids: Tensor, new: list[list[int]], pad: int) -> Tensor:
    longest = max(len(row) for row in new)
    padded = [row + [pad] * (longest - len(row)) for row in new]
    new_ids = torch.tensor(padded, dtype=torch.long, device=input_ids.device)
    return torch.cat([input_ids, new_ids], 1)
