"""The two ends of a `generate` call: what it hands to its loop, and what it wants back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from ..decoding.loop import OnTokens
from ..errors import UnsupportedError
from .requests import refuse_inputs


def to_device(inputs: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The same inputs with every tensor on `device`."""
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }


def prompt_inputs(
    input_ids: Tensor, pixels: dict[str, Tensor], model_kwargs: dict[str, Any], copies: int
) -> dict[str, Any]:
    """The prompts as the model's forward takes them, without what belongs to HF's own loop.

    Under `num_return_sequences` `generate` has repeated all it knows of, but it never saw the
    pixels: one prompt of each group is kept, and repeated once it is embedded.
    """
    others = {"input_ids": input_ids, **refuse_inputs(model_kwargs, input_ids)}
    if copies > 1:
        others = {
            name: value[::copies] if isinstance(value, Tensor) else value
            for name, value in others.items()
        }
    return {**others, **pixels}


def streamer_of_caller(model: Any) -> Any:
    """The streamer given to the `generate` call that called the method.

    Up to transformers 5.23 `generate` hands a custom loop everything but the streamer (it is
    dropped together with the other mode arguments), so it is read from the caller's frame.
    """
    frame = sys._getframe(1)
    for _ in range(3):
        frame = frame.f_back if frame is not None else None  # type: ignore[assignment]
        if frame is None:
            return None
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is model:
            return frame.f_locals.get("streamer")
    return None


def tell_both(streamer: Any, on_tokens: OnTokens | None, rows: int) -> OnTokens | None:
    """One callback for the streamer and the caller's own."""
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
