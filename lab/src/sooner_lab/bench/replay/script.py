"""The script: a text that the target says, and where in it a draft is right.

The vocabulary is a circle, on which the text goes upwards: behind token `t` comes `t + 1`. It is
cut into *segments* of as many tokens as a row says, and each row says a segment of its own. So a
token tells where a text is, whatever row of whatever batch says it, and a script is a table by
token: `ranks[t]` is the place of token `t` among the continuations that a draft gives behind `t -
1`, the likeliest first. At rank 0 the draft is right; a tree may hold the token at a later rank.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from ...theory import Agreement
from .settings import CONTINUATIONS

HIGH = 30.0
"""Logit of a token that is certain: above all that random weights give, so that theirs together
have a chance of less than 1e-6 beside it."""


@dataclass(frozen=True)
class Process:
    """Where a draft is right: a chain of two states, right and wrong.

    Attributes:
        acceptance: chance that a draft token is right, `a`. So a token in `1 / (1 - a)` is wrong,
            whatever the correlation: that is the mean of M.
        correlation: `r` of neighbours; 0 draws every token alone. Behind a right token the next one
            is right by chance `a + r (1 - a)`, behind a wrong one by chance `a (1 - r)`.
        sibling: chance that the next continuation is right where all likelier ones are wrong.
    """

    acceptance: float
    correlation: float = 0.0
    sibling: float = 0.5

    def chances(self) -> list[float]:
        """Returns the chance of each of `CONTINUATIONS` ranks that it holds the right token."""
        wrong, share = 1 - self.acceptance, self.sibling
        rest = [wrong * (1 - share) ** rank * share for rank in range(CONTINUATIONS - 1)]
        return [self.acceptance, *rest]

    def logits(self) -> Tensor:
        """What a draft's logits are at each rank, `[CONTINUATIONS]`."""
        chances = torch.tensor(self.chances(), dtype=torch.float64)
        return (HIGH + chances.log()).float()

    @property
    def again(self) -> float:
        """Chance that the token behind a wrong one is wrong, too."""
        return (1 - self.acceptance) + self.correlation * self.acceptance


def verdicts(tokens: int, wrong: int, runs: int | None, draw: random.Random) -> list[bool]:
    """`tokens` of a chain, `wrong` of them wrong, in so many `runs`: which ones is drawn.

    Sequences of a chain of two states that have as many wrong tokens, in as many runs, are equally
    likely; where tokens are independent, the number of runs says nothing (`None`). Numbers are held
    to their means, so that a text of some hundred tokens says what a long one would.
    """
    if runs is None:
        picked = set(draw.sample(range(tokens), wrong))
        return [place not in picked for place in range(tokens)]
    runs = min(max(runs, 1), wrong, tokens - wrong + 1)
    if not runs:
        return [True] * tokens
    # Right tokens lie between two runs; before the first and behind the last there may be none.
    gaps = _parts(tokens - wrong + 2, runs + 1, draw)
    gaps[0] -= 1
    gaps[-1] -= 1
    result = [True] * gaps[0]
    for length, gap in zip(_parts(wrong, runs, draw), gaps[1:], strict=True):
        result += [False] * length + [True] * gap
    return result


def _parts(total: int, parts: int, draw: random.Random) -> list[int]:
    """`total` in so many parts of 1 or more, every way equally likely."""
    cuts = sorted(draw.sample(range(1, total), parts - 1))
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]


@dataclass(frozen=True)
class Script:
    """Where a draft is right in each segment.

    Attributes:
        vocab: tokens of the circle.
        segment: tokens of a row's text.
        ranks: of each token, `CONTINUATIONS` for one that is not among the draft's.
        process: that the ranks were drawn by.
    """

    vocab: int
    segment: int
    ranks: tuple[int, ...]
    process: Process

    @classmethod
    def draw(cls, process: Process, vocab: int, segment: int, seed: int) -> Script:
        """Every segment has its share of wrong tokens, and of runs of them, to the whole one."""
        draw = random.Random(seed)
        ranks: list[int] = []
        wrong = _shares(segment * (1 - process.acceptance), vocab // segment)
        runs: list[int] | list[None] = [None] * len(wrong)
        if process.correlation:
            runs = _shares(sum(wrong) / len(wrong) * (1 - process.again), len(wrong))
        for each, together in zip(wrong, runs, strict=True):
            ranks += _ranked(process, verdicts(segment, each, together, draw), draw)
        return cls(vocab, segment, (*ranks, *[0] * (vocab - len(ranks))), process)

    @property
    def segments(self) -> int:
        return self.vocab // self.segment

    @property
    def used(self) -> tuple[int, ...]:
        """Ranks of the tokens that segments have."""
        return self.ranks[: self.segments * self.segment]

    def segments_of(self, text: int, rows: int) -> list[int]:
        """Return the segments that the rows of a text generate."""
        return [(text * rows + row) % self.segments for row in range(rows)]

    def text(self, segment: int) -> list[int]:
        """What a row says."""
        return list(range(segment * self.segment, (segment + 1) * self.segment))

    def before(self, segment: int) -> int:
        """The token behind which a segment begins."""
        return (segment * self.segment - 1) % self.vocab

    def rough(self, segment: int) -> list[int]:
        """A copy of a segment's text as a draft made beforehand has it: wrong where the draft
        is."""
        return [
            token if self.ranks[token] == 0 else self.decoy(token) for token in self.text(segment)
        ]

    def decoy(self, token: int) -> int:
        """What stands in the place of a token where a draft is wrong: half a circle away, so that
        no text of the same row has it."""
        return (token + self.vocab // 2) % self.vocab

    @cached_property
    def agreement(self) -> Agreement:
        """Returns, for the whole circle, whether the likeliest continuation is right."""
        return Agreement(tuple(rank == 0 for rank in self.used))


def _shares(mean: float, count: int) -> list[int]:
    """`count` whole numbers next to `mean`, whose mean it is."""
    edges = [round(number * mean) for number in range(count + 1)]
    return [end - start for start, end in pairwise(edges)]


def _ranked(process: Process, right: Sequence[bool], draw: random.Random) -> list[int]:
    """The rank of each token; of the wrong ones each rank has its share."""
    later = process.chances()[1:]
    wrong = sum(not is_right for is_right in right)
    counts, total = [], 0.0
    for chance in later:
        before, total = total, total + chance / max(1 - process.acceptance, 1e-9)
        counts.append(round(wrong * total) - round(wrong * before))
    ranks = [rank for rank, count in enumerate(counts, start=1) for _ in range(count)]
    ranks += [CONTINUATIONS] * (wrong - len(ranks))
    draw.shuffle(ranks)
    wrong_ranks = iter(ranks)
    return [0 if is_right else next(wrong_ranks) for is_right in right]


@dataclass(frozen=True)
class LogitTable:
    """What a script puts into logits, by the token that was read last.

    Attributes:
        ids: continuations, the likeliest first, `[vocab, ranks]`.
        logits: theirs, `[ranks]`.
    """

    ids: Tensor
    logits: Tensor

    @classmethod
    def of_target(cls, vocab: int, ranks: int = 1) -> LogitTable:
        """Behind each token the next one; at further ranks decoys, which it never says."""
        return cls(_ranking(torch.zeros(vocab), ranks), HIGH * _signs(ranks))

    @classmethod
    def of_draft(cls, script: Script) -> LogitTable:
        """Behind each token the ranking of the script; decoys fill it."""
        ranks = torch.tensor(script.ranks)
        return cls(_ranking(ranks, CONTINUATIONS), script.process.logits())


def _ranking(ranks: Tensor, maximum: int) -> Tensor:
    """The continuations of each token, `[vocab, most]`, where the right ones have `ranks
    [vocab]`."""
    vocab, line = len(ranks), torch.arange(maximum)
    after = (torch.arange(vocab) + 1) % vocab
    decoys = (after[:, None] + vocab // 2 + line) % vocab
    return torch.where(line == ranks[after][:, None], after[:, None], decoys)


def _signs(ranks: int) -> Tensor:
    return 2.0 * (torch.arange(ranks) == 0) - 1
