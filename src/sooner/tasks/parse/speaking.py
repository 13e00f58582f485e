"""One run of the engine over a page or its regions, stopped where it runs away."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...decoding.stats import Stats
from ...generation import generate
from ...methods import Method
from ..prefill import Prefill
from .result import LENGTH, REPETITION, TIME, StageStats
from .runaway import RunawayWatch


@dataclass
class Said:
    """What one row said.

    Attributes:
        tokens: to its end, or to where it was stopped; without the id that ends it.
        drafted: which of them a draft proposed.
        sound: tokens in front of a repetition.
        truncated: why it did not come to an end.
    """

    tokens: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    sound: int = 0
    truncated: str | None = None


class _EnoughError(Exception):
    """Leaves the engine: nothing that would follow is wanted."""


def speak(
    model: Any,
    inputs: Mapping[str, Any],
    method: Method,
    limit: int,
    repetition: int,
    eos: set[int],
    prefill: Prefill | None = None,
    seconds: float | None = None,
) -> tuple[list[Said], Stats | None]:
    """Decode greedily; a lone row is stopped where it repeats itself for too long.

    Args:
        limit: most new tokens of a row.
        repetition: of `RunawayWatch`; rows of a batch end at `limit` at the latest.
        eos: ids that end a row.
        prefill: a sparse one; the model's own by default.
        seconds: of decoding, after which all rows are stopped; neither the prefill nor the wait for
            drafts counts.

    Returns:
        What each row said, and the run's figures; `None` if it was stopped.
    """
    rows = int(inputs["input_ids"].shape[0])
    watch = RunawayWatch(repetition if rows == 1 else 0)
    said: dict[int, Said] = defaultdict(Said)

    clock = _Clock(seconds)

    def listen(row: int, tokens: list[int], drafted: int) -> None:
        one = said[row]
        is_late = clock.is_over(is_first=not one.tokens)
        for place, token in enumerate(tokens):
            one.tokens.append(token)
            one.drafted.append(place < drafted)
            if token not in eos and watch.add(token):
                one.sound, one.truncated = watch.sound, REPETITION
                raise _EnoughError
        if is_late and tokens[-1] not in eos:
            raise _EnoughError

    stats = None
    try:
        made = generate(
            model, inputs, method, prefill=prefill, on_tokens=listen, do_sample=False,
            max_new_tokens=limit,
        )  # fmt: skip
        stats = made.stats
    except _EnoughError:
        pass
    return [_ended(said[row], limit, eos, clock.has_stopped) for row in range(rows)], stats


class _Clock:
    """Says when decoding has taken too long, from the second commit on: what lies in front of that
    is prefill, and waiting for drafts."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.began: float | None = None
        self.has_stopped = False

    def is_over(self, is_first: bool) -> bool:
        if self.seconds is None or is_first:
            return False
        now = time.perf_counter()
        self.began = self.began or now
        self.has_stopped = now - self.began > self.seconds
        return self.has_stopped


def _ended(one: Said, limit: int, eos: set[int], is_late: bool) -> Said:
    if one.truncated is None:
        if one.tokens and one.tokens[-1] in eos:
            one.tokens.pop()
            one.drafted.pop()
        elif len(one.tokens) >= limit:
            one.truncated = LENGTH
        elif is_late:
            one.truncated = TIME
        one.sound = len(one.tokens)
    return one


def figures(stats: Stats | None, said: list[Said], mode: str) -> StageStats:
    """Figures of a stage; of one that was stopped, only how much it said."""
    if stats is None:
        return StageStats(len(said), sum(len(one.tokens) for one in said), mode=mode)
    return StageStats(
        rows=stats.rows,
        tokens=stats.tokens,
        steps=stats.nfe,
        mode=stats.mode,
        mean_acceptance_length=stats.mean_acceptance_length,
        aal=stats.aal,
        decode_seconds=stats.decode_seconds,
        tokens_per_second=stats.tokens_per_second,
    )


def combined(runs: Iterable[Stats]) -> StageStats:
    """Several runs as one."""
    runs = list(runs)
    steps = sum(run.num_spec_steps for run in runs)
    accepted = sum(run.num_accepted_draft_tokens for run in runs)
    seconds = sum(run.decode_seconds for run in runs)
    decoded = sum(run.decode_tokens for run in runs)
    return StageStats(
        rows=sum(run.rows for run in runs),
        tokens=sum(run.tokens for run in runs),
        steps=sum(run.nfe for run in runs),
        mode=runs[0].mode,
        mean_acceptance_length=1 + accepted / steps if steps else 0.0,
        aal=accepted / steps if steps else 0.0,
        decode_seconds=seconds,
        tokens_per_second=decoded / seconds if seconds else 0.0,
    )


def eos_ids(model: Any) -> list[int]:
    """Ids that end a text of a model."""
    ids = model.generation_config.eos_token_id
    if ids is None:
        return []
    return [int(one) for one in (ids if isinstance(ids, list | tuple) else [ids])]
