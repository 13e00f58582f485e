"""Timeline of one parallel run: overlap, waiting and discarded forwards of draft and target."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sooner.decoding.loop import Rule
from sooner.generation import generate
from sooner.methods.context import Context
from sooner.methods.parallel.drafter import ParallelDrafter
from sooner.models import adapt

from .contenders import OURS, ParallelContender
from .running import Runner, SeenVLM
from .watch import EventLog, TraceEvent, note_waits, watched

Figures = dict[str, Any]


@dataclass(frozen=True)
class TimedVLM(SeenVLM):
    """The method itself, with the target's waiting noted."""

    log: EventLog | None = field(default=None, repr=False, compare=False)

    def build(self, context: Context) -> tuple[ParallelDrafter, Rule]:
        drafter, rule = super().build(context)
        if self.log is not None:
            note_waits(drafter.worker, self.log)
        return drafter, rule


def timeline(runner: Runner, index: int, alpha: float) -> Figures:
    """Run the pruned parallel method once over clip `index` with both sides watched.

    The worker is forked for this run, with the draft's watch in place.

    Returns:
        `target` and `draft`, lists of events; `commits`, `[seconds, new tokens, accepted]` each;
        and `phases`, see `phases`. All times are seconds since generation began.
    """
    clip = runner.bench.clip(OURS, index)
    pair = runner.bench.pair
    assert pair.draft is not None
    one = ParallelContender(OURS, "timeline", alpha)
    plain = runner.method(one, clip)
    assert isinstance(plain, SeenVLM)
    depth = plain.depth(adapt(runner.model).layers)
    arrivals: list[tuple[float, int, int]] = []
    with watched(runner.model, pair.draft.model, depth) as (target, draft):
        method = TimedVLM(
            pair.draft.model,
            prune=alpha,
            least=0,
            placement=plain.placement,
            draft_inputs=clip.draft_inputs,
            log=target,
        )
        begin = time.perf_counter()
        made = generate(
            runner.model,
            clip.inputs,
            method,
            on_tokens=lambda row, new, good: arrivals.append((time.perf_counter(), len(new), good)),
            max_new_tokens=clip.max_new_tokens,
            do_sample=False,
        )
    said = made.tokens[0]
    return {
        "clip": index,
        "alpha": alpha,
        "new_tokens": len(said),
        "target": [_plain(event, begin) for event in target.events()],
        "draft": [
            {**_plain(event, begin), "right": right}
            for event, right in zip(draft.events(), fates(draft.events(), said), strict=True)
        ],
        "commits": [[at - begin, new, good] for at, new, good in arrivals],
        "phases": phases(target.events(), draft.events(), said, begin),
    }


def _plain(event: TraceEvent, begin: float) -> Figures:
    return {
        "kind": event.kind,
        "start": round(event.start - begin, 6),
        "end": round(event.end - begin, 6),
        "entries": event.entries,
        "place": event.place,
    }


def fates(events: Sequence[TraceEvent], said: Sequence[int]) -> list[bool | None]:
    """For each draft forward, whether its token came to stand in the text.

    A place that was drafted again had been on a line that was given up. `None` for what drafts
    nothing.
    """
    last = {event.place: number for number, event in enumerate(events) if event.token >= 0}
    return [
        None
        if event.token < 0
        else last[event.place] == number
        and event.place < len(said)
        and said[event.place] == event.token
        for number, event in enumerate(events)
    ]


def phases(
    target: Sequence[TraceEvent], draft: Sequence[TraceEvent], said: Sequence[int], begin: float
) -> Figures:
    """Seconds of the run by phase.

    Returns:
        What is before the target's first work, `launch`, which sets the worker going; its
        `vision`, `prefill` (`ranking` within it), `verify`, `waiting` and what is left of the time
        to its last forward, `rest`; `first_token`, when the prefill ended; the draft's
        `draft_vision`, `draft_prefill`, split by the end of the target's prefill into
        `draft_hidden` and `draft_exposed`; `draft_seconds` of its steps, and
        `draft_useful`, the share of them whose token came to stand in the text.
    """
    prefill_end = next(event.end for event in target if event.kind == "prefill")
    opening = [event for event in draft if event.kind in ("vision", "prefill")]
    hidden = sum(max(0.0, min(event.end, prefill_end) - event.start) for event in opening)
    steps = [event for event in draft if event.kind == "step"]
    good = sum(right is True for right in fates(draft, said))
    drafted = sum(event.token >= 0 for event in draft)
    found = {
        "launch": min(event.start for event in target) - begin,
        "vision": _total(target, "vision"),
        "prefill": _total(target, "prefill"),
        "verify": _total(target, "step"),
        "waiting": _total(target, "wait"),
    }
    whole = max(event.end for event in target) - begin
    return {
        **found,
        "rest": whole - sum(found.values()),
        "whole": whole,
        "ranking": _total(target, "rank"),
        "first_token": prefill_end - begin,
        "draft_vision": _total(draft, "vision"),
        "draft_prefill": _total(draft, "prefill"),
        "draft_hidden": hidden,
        "draft_exposed": sum(event.seconds for event in opening) - hidden,
        "draft_seconds": sum(event.seconds for event in steps),
        "draft_useful": good / drafted if drafted else None,
    }


def _total(events: Sequence[TraceEvent], kind: str) -> float:
    return sum(event.seconds for event in events if event.kind == kind)
