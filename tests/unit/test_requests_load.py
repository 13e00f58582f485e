"""What a joining row's draft is worth, on made-up clocks."""

from __future__ import annotations

import random

import pytest

from sooner.methods.controller import RoundCost
from sooner.methods.draft_length import AdaptiveDraftLength, DraftLength
from sooner.methods.experience import Acceptance

CLIP, TEXT = True, False
PROMPT = {CLIP: 268, TEXT: 10}


def seconds(rows: int, block: int) -> float:
    """A round of the target over `rows` blocks."""
    return (6.7 + 0.95 * rows + 0.27 * rows * (block - 1)) / 1e3


def drafting(rows: int) -> float:
    """A draft forward."""
    return (0.8 + 0.33 * rows) / 1e3


class Requests:
    """A closed loop of clients on a server's engine: each step prefills a part and has a round.

    Two in three requests are about clips, whose drafts are right with probability `rate`; those of
    text never are.
    """

    def __init__(self, known: Acceptance | None, clients: int, rate: float, seed: int) -> None:
        self.known, self.random, self.rate = known, random.Random(seed), rate
        self.clients, self.now, self.tokens, self.requests = clients, 0.0, 0, 0

    def begin(self, kind: bool, waiting: int, rows: int) -> DraftLength:
        """Prefill a request; the length that it begins with."""
        self.now += (70.0 if kind == CLIP else 8.0) / 1e3
        if self.known is None:
            return DraftLength(0)
        self.known.requests.expect(rows, waiting, 32)
        length = AdaptiveDraftLength(16, experience=self.known.of(kind))
        self.takes = length.takes_rows(PROMPT[kind], 128)
        if self.takes:
            took = (13.5 if kind == CLIP else 3.0) / 1e3
            self.now, self.requests = self.now + took, self.requests + 1
            length.prefilled(PROMPT[kind], took)
        return length

    def run(self, requests: int) -> float:
        """Tokens a second over so many requests."""
        rows: dict[int, list[int]] = {}  # kind and tokens left
        began: dict[int, DraftLength] = {}
        members: set[int] = set()
        batch, begun = DraftLength(0), 0
        while begun < requests or rows:
            if len(rows) < self.clients and begun < requests:
                kind = begun % 3 != 0
                self.takes = False
                waiting = min(self.clients, requests - begun + len(rows)) - len(rows) - 1
                began[begun] = self.begin(kind, waiting, len(rows))
                batch = batch if rows else began[begun]
                members |= {begun} if self.takes else set()
                rows[begun], begun = [kind, 63 if kind == CLIP else 48], begun + 1
            self.round(batch, rows, began, members)
        return self.tokens / self.now

    def round(
        self,
        batch: DraftLength,
        rows: dict[int, list[int]],
        began: dict[int, DraftLength],
        members: set[int],
    ) -> None:
        ids = list(rows)
        may = [row in members for row in ids]
        sizes = batch.choose(ids, may, [began[row] for row in ids])
        drafted = [
            min(size, rows[row][1] - 1) if can else 0
            for row, size, can in zip(ids, sizes, may, strict=True)
        ]
        block, accepted = 1 + max(drafted), []
        for row, size in zip(ids, drafted, strict=True):
            good, rate = 0, self.rate if rows[row][0] == CLIP else 0.0
            while good < size and self.random.random() < rate:
                good += 1
            accepted.append(good)
        stall = self.random.lognormvariate(0.0, 0.1)
        spent = stall * (block - 1) * drafting(sum(may))
        took = stall * seconds(len(ids), block)
        self.now += spent + took
        self.tokens += len(ids) + sum(accepted)
        done = RoundCost(len(ids), block, spent, block - 1, seconds=took, members=sum(may))
        batch.observe_cost(done, 1 + sum(accepted) / len(ids))
        for row, good in zip(ids, accepted, strict=True):
            rows[row][1] -= 1 + good
        entries = [
            entry for entry in zip(ids, drafted, accepted, strict=True) if rows[entry[0]][1] > 0
        ]
        for row in [row for row, (_, left) in rows.items() if left <= 0]:
            del rows[row]
        if entries:
            batch.observe(*zip(*entries, strict=True))
        else:
            batch.close()


@pytest.mark.parametrize(
    ("clients", "rate", "minimum"),
    [(1, 0.97, 1.5), (2, 0.97, 1.2), (4, 0.97, 1.05), (16, 0.97, 0.96), (32, 0.97, 0.97),
     (1, 0.1, 0.96), (8, 0.1, 0.97), (32, 0.1, 0.97)],
)  # fmt: skip
def test_requests_that_come_and_go_are_drafted_for_where_it_pays(
    clients: int, rate: float, minimum: float
) -> None:
    """Over plain decoding, drafts' prefills counted, once a server has seen some requests."""
    ratios = []
    for seed in range(3):
        known = Acceptance()
        Requests(known, 2, rate, seed).run(60)
        plain = Requests(None, clients, rate, seed).run(150)
        ratios.append(Requests(known, clients, rate, seed).run(150) / plain)
    assert sum(ratios) / len(ratios) >= minimum, ratios
