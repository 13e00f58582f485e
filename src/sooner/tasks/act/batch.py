"""A ragged batch of observations: decoded to so many tokens a row, read as actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...checks import check_number
from ...engine.loop import OnTokens, run
from ...engine.row_sampling import SamplingParams
from ...engine.stats.run import Stats
from ...methods import Autoregressive, Method
from ...models import Adapter
from ...models.openvla.statistics import ActionStatistics, decode_actions
from .action import Action, Distance
from .observation import Observation


@dataclass(frozen=True, eq=False)
class Decoded:
    """Tokens and statistics that one run gave.

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
    check_number("temperature", temperature, hint="; 0 is greedy")
    began = time.perf_counter()
    inputs = make_inputs()
    outputs: list[list[int]] = [[] for _ in inputs["input_ids"]]

    def keep(row: int, new: list[int], drafted: int) -> None:
        outputs[row] += new
        if on_tokens is not None:
            on_tokens(row, new, drafted)

    session = method.session(
        adapter,
        inputs,
        SamplingParams(
            max_new_tokens=tokens, do_sample=temperature > 0, temperature=temperature or 1.0
        ),
        generator=generator,
        on_tokens=keep,
    )
    run(session)
    return Decoded(np.array(outputs, dtype=np.int64), session.stats, time.perf_counter() - began)


class ActionBatch:
    """Observations that share their forwards.

    Args:
        policy: the `Policy` that acts.
        observations, keys: of each row, with the data set that its action is of.
    """

    def __init__(
        self, policy: Any, observations: Sequence[Observation], keys: Sequence[str]
    ) -> None:
        self.policy, self.observations = policy, observations
        self.statistics = [policy.statistics[key] for key in keys]

    def actions(self, name: str, method: Method, **options: Any) -> list[Action]:
        """Decode with a method that goes by `name`; `options` are those of `decode`."""
        decoded = decode(
            self.policy.adapter,
            self._inputs,
            method,
            self.policy.horizon * self.statistics[0].dims,
            **options,
        )
        rows = len(self.observations)
        self.policy.pace.add(name, rows, decoded.seconds)
        return [self._action(row, name, decoded) for row in range(rows)]

    def compared(self, made: list[Action]) -> list[Action]:
        """Returns the same actions, with their distance from plain decoding's."""
        exact = self.actions("plain", Autoregressive())
        return [
            replace(action, from_exact=self._between(action.ids, plain.ids, statistics))
            for action, plain, statistics in zip(made, exact, self.statistics, strict=True)
        ]

    def _inputs(self) -> Mapping[str, Any]:
        pictures = [observation.image for observation in self.observations]
        return self.policy.processor(
            pictures, [observation.instruction for observation in self.observations]
        )

    def _action(self, row: int, name: str, decoded: Decoded) -> Action:
        tokens, statistics = self.policy.tokens, self.statistics[row]
        output = decoded.ids[row : row + 1]
        ids = output.reshape(-1, statistics.dims)
        return Action(
            values=decode_actions(output, tokens, statistics)[0],
            ids=ids,
            clipped=self._bins(ids) < 0,
            unnorm_key=statistics.name,
            names=statistics.names,
            method=name,
            mode=decoded.stats.mode,
            deviation=self._local(decoded.stats, row),
            from_exact=None,
            stats=decoded.stats,
            seconds=decoded.seconds,
        )

    def _local(self, stats: Stats, row: int) -> Distance | None:
        if stats.deviation is None:
            return None
        widths = self.statistics[row].bin_width(self.policy.tokens)
        return Distance.local(stats.deviation.of(row), widths)

    def _between(
        self, ours: np.ndarray, exact: np.ndarray, statistics: ActionStatistics
    ) -> Distance:
        apart = np.abs(self._read_bins(ours) - self._read_bins(exact))
        return Distance.between(apart, statistics.bin_width(self.policy.tokens))

    def _bins(self, ids: np.ndarray) -> np.ndarray:
        return self.policy.tokens.bins(torch.from_numpy(ids)).numpy()

    def _read_bins(self, ids: np.ndarray) -> np.ndarray:
        """Returns bins as they are read: two ids with one centre, or no action at all, are the
        nearest.
        """
        tokens = self.policy.tokens
        return np.clip(tokens.vocab_size - 1 - ids, 0, tokens.edges - 2)
