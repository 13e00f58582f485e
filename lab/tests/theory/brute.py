"""The pipelines once more, by ticks of one second and with tokens spelled out; slow and plain.

The target's text is 0, 1, 2, ...; the draft says the next of it where it agrees and its prefix is
right, and -1 otherwise. Nothing here uses the simulators' shortcuts: tokens are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What a brute-force run did."""

    time: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    text: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    open: int = 0

    def add(self, tokens: list[int], accepted: int, rejected: bool, limit: int) -> None:
        tokens = tokens[: limit - len(self.text)]
        self.text += tokens
        self.accepted += min(accepted, len(tokens))
        self.open += len(tokens)
        if rejected:
            self.runs.append(self.open)
            self.open = 0

    def all_runs(self) -> list[int]:
        return self.runs + ([self.open] if self.open else [])


def draft_token(prefix: list[int], verdicts: list[bool]) -> int:
    position = len(prefix)
    right = prefix == list(range(position)) and verdicts[position % len(verdicts)]
    return position if right else -1


def lockstep(
    step: Callable[[int], int],
    tq: int,
    x: int,
    verdicts: list[bool],
    window: int,
    limit: int,
    bonus: bool,
    cancel: bool,
    startup: int,
) -> Tally:
    tally = Tally()
    pending: list[int] = []
    for _ in range(startup):
        pending.append(draft_token(pending, verdicts))
    while True:
        base = tally.text + pending
        fresh: list[int] = []
        target_left, draft_left = step(1 + len(pending)), tq
        tally.steps += 1
        first, judged, dead = len(tally.text), False, False
        waits_for_first = False
        good = 0
        while True:  # the ticks of one round
            tally.time += 1
            target_left -= 1
            if draft_left:
                draft_left -= 1
                if draft_left == 0:
                    fresh.append(draft_token(base + fresh, verdicts))
            if target_left == 0:
                while good < len(pending) and pending[good] == first + good:
                    good += 1
                if good < len(pending):
                    tally.add(list(range(first, first + good + 1)), good, True, limit)
                    judged = dead = True
                elif pending and not bonus:
                    tally.add(list(range(first, first + good)), good, False, limit)
                    judged = True
                else:
                    waits_for_first = True
            if waits_for_first and fresh:
                waits_for_first, judged = False, True
                dead = fresh[0] != first + good
                tokens = list(range(first, first + good + 1))
                tally.add(tokens, good + (not dead), dead, limit)
            if judged and len(tally.text) == limit:
                return tally
            if draft_left == 0 and len(fresh) < window and not (dead and cancel):
                draft_left = tq
            if judged and draft_left == 0:
                break
        tally.time += x
        tally.drafted += len(fresh)
        pending = [] if dead else (pending + fresh)[len(tally.text) - first :]


def free(
    step: Callable[[int], int],
    tq: int,
    x: int,
    verdicts: list[bool],
    limit: int,
    window: int | None,
    startup: int,
) -> Tally:
    tally = Tally()
    line: list[int] = []  # the draft's text
    for _ in range(startup):
        line.append(draft_token(line, verdicts))
    known, confirmed, doing, draft_left = [], startup, None, 0
    to_target: list[tuple[int, list[int]]] = []
    to_draft: list[tuple[int, list[int], int]] = []
    arrived = list(line)  # the target's copy of the draft's text
    block, target_left = len(arrived), step(1 + len(arrived))
    tally.steps = 1

    def start() -> None:
        nonlocal doing, draft_left
        if doing is None and (window is None or len(line) < confirmed + window):
            doing, draft_left = [*line, draft_token(line, verdicts)], tq
            tally.drafted += 1

    start()
    while True:
        tally.time += 1
        if doing is not None:
            draft_left -= 1
            if draft_left == 0:
                to_target.append((tally.time + x, doing))
                line = follow(doing, known)
                doing = None
        for when, text in to_target:
            if when == tally.time and text[: len(tally.text)] == tally.text:
                arrived = text if len(text) > len(arrived) else arrived
        target_left -= 1
        if target_left == 0:
            first = len(tally.text)
            good = 0
            while first + good < block and arrived[first + good] == first + good:
                good += 1
            last = first + good
            there = last < len(arrived)
            right = there and arrived[last] == last
            tokens = list(range(first, last + 1))
            tally.add(tokens, good + right, there and not right, limit)
            if len(tally.text) == limit:
                return tally
            arrived = follow(arrived, tally.text)
            block, target_left = len(arrived), step(1 + len(arrived) - len(tally.text))
            tally.steps += 1
            to_draft.append((tally.time + x, list(tally.text), len(arrived)))
        for when, text, took in to_draft:
            if when == tally.time:
                known, confirmed = text, took
                if doing is None:
                    line = follow(line, known)
        start()


def follow(line: list[int], settled: list[int]) -> list[int]:
    """`line` where it agrees with what is settled, else what is settled."""
    overlap = min(len(line), len(settled))
    agrees = line[:overlap] == settled[:overlap]
    return list(line) if agrees and len(line) >= len(settled) else list(settled)
