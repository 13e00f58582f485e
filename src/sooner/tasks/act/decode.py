"""One decoding run of exactly so many tokens a row, with nothing of `generate` around it.

A robot's action is a handful of tokens, so what `generate` does before its first one would count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
)

from ...decoding.loop import OnTokens, run
from ...decoding.stats import Stats
from ...errors import SoonerError
from ...methods import Method
from ...models import Adapter


@dataclass(frozen=True, eq=False)
class Decoded:
    """What a run said.

    Attributes:
        ids: `[rows, tokens]`.
        stats: of the run.
        seconds: inputs included.
    """

    ids: np.ndarray
    stats: Stats
    seconds: float


def decode(
    adapter: Adapter,
    make_inputs: Callable[[], Mapping[str, Any]],
    method: Method,
    tokens: int,
    *,
    generator: torch.Generator | None = None,
    temperature: float = 0.0,
    on_tokens: OnTokens | None = None,
) -> Decoded:
    """Say `tokens` tokens a row; no id ends a row sooner.

    Raises:
        SoonerError: a negative temperature, or as the method.
    """
    if not temperature >= 0:
        raise SoonerError(f"temperature is {temperature}; it must be 0 (greedy) or above")
    warm = temperature > 0 and temperature != 1
    began = time.perf_counter()
    inputs = make_inputs()
    said: list[list[int]] = [[] for _ in inputs["input_ids"]]

    def keep(row: int, new: list[int], drafted: int) -> None:
        said[row] += new
        if on_tokens is not None:
            on_tokens(row, new, drafted)

    session = method.session(
        adapter,
        inputs,
        processors=LogitsProcessorList([TemperatureLogitsWarper(temperature)] if warm else []),
        criteria=StoppingCriteriaList([MaxLengthCriteria(inputs["input_ids"].shape[1] + tokens)]),
        do_sample=temperature > 0,
        generator=generator,
        on_tokens=keep,
    )
    run(session)
    return Decoded(np.array(said, dtype=np.int64), session.stats, time.perf_counter() - began)
