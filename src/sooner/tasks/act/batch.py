"""A ragged batch of observations: decoded to so many tokens a row, read as actions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...checks import check_number
from ...engine.loop import OnTokens, run
from ...engine.row_sampling import SamplingParams
from ...methods import Method
from ...models.openvla.statistics import decode_actions
from .action import Action, Distance
from .observation import Observation


def act_batch(
    policy: Any,
    observations: Sequence[Observation],
    keys: Sequence[str],
    name: str,
    method: Method,
    *,
    generator: torch.Generator | None = None,
    temperature: float = 0.0,
    on_tokens: OnTokens | None = None,
) -> list[Action]:
    """Returns the actions for observations that share their forwards.

    Args:
        policy: the `Policy` that acts.
        observations, keys: of each row, with the data set that its action is of; their actions are
            of one length.
        name: what the method goes by.

    Raises:
        SoonerError: a negative temperature, or as the method.
    """
    check_number("temperature", temperature, hint="; 0 is greedy")
    began = time.perf_counter()
    statistics = [policy.statistics[key] for key in keys]
    inputs = policy.processor(
        [observation.image for observation in observations],
        [observation.instruction for observation in observations],
    )
    outputs: list[list[int]] = [[] for _ in observations]

    def keep(row: int, new: list[int], drafted: int) -> None:
        outputs[row] += new
        if on_tokens is not None:
            on_tokens(row, new, drafted)

    params = SamplingParams(  # no id ends a row sooner
        max_new_tokens=policy.horizon * statistics[0].dims,
        do_sample=temperature > 0,
        temperature=temperature or 1.0,
    )
    session = method.session(policy.adapter, inputs, params, generator=generator, on_tokens=keep)
    run(session)
    seconds, stats = time.perf_counter() - began, session.stats
    policy.pace.add(name, len(observations), seconds)
    actions = []
    for row, (output, entry) in enumerate(zip(outputs, statistics, strict=True)):
        ids = np.array(output, dtype=np.int64).reshape(-1, entry.dims)
        deviation = None
        if stats.deviation is not None:
            widths = entry.bin_width(policy.tokens)
            deviation = Distance.local(stats.deviation.of(row), widths)
        actions.append(
            Action(
                values=decode_actions(ids.reshape(1, -1), policy.tokens, entry)[0],
                ids=ids,
                clipped=policy.tokens.bins(torch.from_numpy(ids)).numpy() < 0,
                unnorm_key=entry.name,
                names=entry.names,
                method=name,
                mode=stats.mode,
                deviation=deviation,
                from_exact=None,
                stats=stats,
                seconds=seconds,
            )
        )
    return actions


def compared(policy: Any, actions: Sequence[Action], exact: Sequence[Action]) -> list[Action]:
    """Returns the same actions, with their distance from those of plain decoding."""
    tokens = policy.tokens
    compared_actions = []
    for action, plain in zip(actions, exact, strict=True):
        # Bins as they are read: two ids with one centre, or no action at all, are the nearest.
        bins, reference = (
            np.clip(tokens.vocab_size - 1 - ids, 0, tokens.edges - 2)
            for ids in (action.ids, plain.ids)
        )
        widths = policy.statistics[action.unnorm_key].bin_width(tokens)
        distance = Distance.between(np.abs(bins - reference), widths)
        compared_actions.append(replace(action, from_exact=distance))
    return compared_actions
