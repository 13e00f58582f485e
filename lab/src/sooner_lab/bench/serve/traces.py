"""What the answers of a load say: times of tokens, texts, counts; and figures over many of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..run import quotient
from .load import HttpAnswer, LoadResult

DATA = b"data: "
BLOCKS = 8
"""Slices of a load's time: what the bootstrap draws."""

Figures = dict[str, Any]
Block = tuple[float, float]
"""Tokens, and the seconds that they took."""


@dataclass(frozen=True)
class AnswerTrace:
    """One answered request; seconds since the load began.

    Attributes:
        number: of what was asked.
        due: when it came.
        first, last: of its tokens.
        ended: when its stream ended.
        tokens: new ones, an end token among them.
        text: of the answer.
        ids: the tokens, where they were asked for.
        prompt, cached: tokens of the prompt, and those among them that were not prefilled.
        steps, drafted, accepted: rounds, and draft tokens in them.
        is_streamed: its tokens came one by one; else `first` and `last` are those of its batch.
    """

    number: int
    due: float
    first: float
    last: float
    ended: float
    tokens: int
    text: str
    ids: tuple[int, ...] = ()
    prompt: int = 0
    cached: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    is_streamed: bool = True

    @property
    def seconds(self) -> float:
        return self.ended - self.due

    @property
    def first_token(self) -> float:
        """Seconds to the first token."""
        return self.first - self.due

    @property
    def per_token(self) -> float | None:
        """Seconds a token behind the first one; `None` if there is none."""
        return (self.last - self.first) / (self.tokens - 1) if self.tokens > 1 else None


def trace_of(answer: HttpAnswer) -> AnswerTrace | None:
    """What an answer says; `None` if it is a refusal, broke off or tells an error."""
    if answer.status != 200 or not answer.events or answer.events[-1][1] != DATA + b"[DONE]":
        return None
    first = last = None
    text: list[str] = []
    ids: list[int] = []
    usage: Any = None
    drafts: Any = None
    for at, event in answer.events[:-1]:
        if not event.startswith(DATA):
            continue  # a ping
        data = json.loads(event[len(DATA) :])
        if "error" in data:
            return None
        if data.get("usage"):
            usage, drafts = data["usage"], data["metrics"]["speculative_decoding"]
        for choice in data["choices"]:
            piece = choice["delta"].get("content") if "delta" in choice else choice["text"]
            more = choice.get("token_origins") or []
            if piece or more:
                first = at if first is None else first
            if piece or more or choice.get("finish_reason"):
                last = at
            text.append(piece or "")
            ids += [origin["id"] for origin in more]
    if usage is None or last is None:
        return None
    return AnswerTrace(
        number=answer.number,
        due=answer.due,
        first=last if first is None else first,
        last=last,
        ended=answer.ended,
        tokens=usage["completion_tokens"],
        text="".join(text),
        ids=tuple(ids),
        prompt=usage["prompt_tokens"],
        cached=usage["prompt_tokens_details"]["cached_tokens"],
        steps=drafts["num_spec_steps"],
        drafted=drafts["num_draft_tokens"],
        accepted=drafts["num_accepted_draft_tokens"],
    )


@dataclass(frozen=True)
class LoadTraces:
    """The traces of one load.

    Attributes:
        traces: in the order in which they ended.
        lost: requests that were not answered well.
        seconds: that it took.
    """

    traces: list[AnswerTrace]
    lost: int
    seconds: float

    @staticmethod
    def of(result: LoadResult) -> LoadTraces:
        parsed = [trace_of(item) for item in result.answers]
        traces = [item for item in parsed if item is not None]
        return LoadTraces(traces, len(parsed) - len(traces), result.seconds)

    @property
    def tokens(self) -> int:
        return sum(trace.tokens for trace in self.traces)

    def blocks(self, count: int = BLOCKS) -> list[Block]:
        """Tokens and seconds of equal slices of its time; their sums are the load's.

        An answer's tokens are spread evenly from its first to its last.
        """
        edges = np.linspace(0, self.seconds, count + 1)
        tokens = np.zeros(count)
        for item in self.traces:
            span = max(item.last - item.first, 1e-9)
            begun = np.clip((edges - item.first) / span, 0, 1)  # [count + 1] shares said so far
            tokens += item.tokens * np.diff(begun)
        return [(float(item), self.seconds / count) for item in tokens]


def figures(loads: Sequence[LoadTraces]) -> Figures:
    """Rates, percentiles, acceptance and cached tokens of loads of one arm.

    Returns:
        `requests`, `lost`, `requests_per_second` and `tokens_per_second` (all loads together),
        `first_token_ms` and `per_token_ms` with `p50` and `p99` over requests,
        `acceptance_rate`, `mean_acceptance_length`, `cached_tokens` and `prompt_tokens` a request.
    """
    traces = [trace for load in loads for trace in load.traces]
    seconds = sum(load.seconds for load in loads)
    result: Figures = {"requests": len(traces), "lost": sum(load.lost for load in loads)}
    if not traces:
        return result
    drafted, steps = sum(trace.drafted for trace in traces), sum(trace.steps for trace in traces)
    accepted = sum(trace.accepted for trace in traces)
    result |= {
        "requests_per_second": len(traces) / seconds,
        "tokens_per_second": sum(trace.tokens for trace in traces) / seconds,
    }
    if not traces[0].is_streamed:
        return result
    return result | {
        "first_token_ms": _percentiles([trace.first_token for trace in traces]),
        "per_token_ms": _percentiles(
            [trace.per_token for trace in traces if trace.per_token is not None]
        ),
        "acceptance_rate": accepted / drafted if drafted else None,
        "mean_acceptance_length": 1 + accepted / steps if steps and drafted else None,
        "prompt_tokens": sum(trace.prompt for trace in traces) / len(traces),
        "cached_tokens": sum(trace.cached for trace in traces) / len(traces),
    }


def over(ours: Sequence[Block], base: Sequence[Block], seed: int) -> Figures:
    """Return tokens a second over another arm's; `value` and `interval`.

    The interval is a bootstrap over slices of time (batch means): requests that decode together
    are not independent, slices of a load nearly are. Both arms need as many slices, of the same
    requests in the same rounds; else there is none.
    """
    if not ours or not base:
        return {"value": None, "interval": None}
    if len(ours) == len(base) >= BLOCKS:
        tokens, seconds = zip(*ours, strict=True)
        base_tokens, base_seconds = zip(*base, strict=True)
        return quotient((tokens, seconds), (base_tokens, base_seconds), seed)
    rates = [
        sum(block[0] for block in each) / sum(block[1] for block in each) for each in (ours, base)
    ]
    return {"value": rates[0] / rates[1], "interval": None}


def _percentiles(seconds: Sequence[float]) -> Figures | None:
    if not seconds:
        return None
    return {f"p{at}": 1000 * float(np.percentile(seconds, at)) for at in (50, 99)}
