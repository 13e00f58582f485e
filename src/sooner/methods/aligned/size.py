"""How many draft tokens to verify, and how far continuations of each kind can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..sizing.costs import Costs
from ..sizing.pauses import LEAST_GAIN

LONGEST = 6
"""Matches of more tokens are not told apart."""

OPENING = 0
"""First token of an unused draft, where one ends or a text begins; 1 to `LONGEST` are the tokens
that match in front of a continuation."""

REPEATED = LONGEST + 1
"""What followed earlier in the text itself."""

NOWHERE = LONGEST + 2
"""First token of an unused draft, for want of anything better."""

JOINED = LONGEST + 3
"""What stood between two drafts before, where one ends."""

GLUED = LONGEST + 4
"""First token of an unused draft, where one ended and the target has said something unexpected."""

INSTEAD, BESIDES, LEFT_OUT, SHORTER = range(LONGEST + 5, LONGEST + 9)
"""Behind a token that the draft did not expect: it stood for as many of the draft's as were said
since, for none, for one more, or for one less."""

REJOINED = LONGEST + 9
"""Where one of those four was right, or an opening where one was due."""

KINDS = LONGEST + 10

NEXT = (REJOINED, *range(2, LONGEST + 1), LONGEST, REPEATED, 1, JOINED, 2, *[REJOINED] * 4, 5)
"""Kind of a continuation after one more of its tokens turned out right."""

FIRST_GUESS = {
    **{OPENING: 0.6, NOWHERE: 0.05, JOINED: 0.7, GLUED: 0.4},
    **{1: 0.25, 2: 0.6, 3: 0.7, 4: 0.75, 5: 0.8, 6: 0.94, REPEATED: 0.3},
    **{INSTEAD: 0.35, BESIDES: 0.2, LEFT_OUT: 0.25, SHORTER: 0.08, REJOINED: 0.8},
}
"""Chance that the best continuation of each kind goes on right, before anything was seen."""

SHARES = (1.0, 0.5, 0.2, 0.1, 0.05)
"""The same for continuations that are not the best of all, but the first of their kind, the second,
and so on, as shares of it."""

PRIOR, MEMORY = 4.0, 0.98
"""Observations that a first guess counts for; weight that they keep from one to the next."""

MOST_CERTAIN = 0.995


class Trust:
    """Chance that a continuation goes on right, by its kind and its rank among its siblings.

    A kind that is the second best somewhere is less likely right there than where it is the best.

    The target's own text tells, whatever was drafted: a round that verified nothing has the same
    evidence about what would have been accepted as one that verified a large tree. So bad drafts
    cost nothing to watch, and good ones are noticed at once.

    Attributes:
        chances: `[kind][rank]`; all ranks from `len(SHARES) - 1` on are one.
    """

    def __init__(self) -> None:
        self.chances = [[FIRST_GUESS[kind] * share for share in SHARES] for kind in range(KINDS)]
        self._tries = [[PRIOR] * len(SHARES) for _ in range(KINDS)]

    def observe(self, kind: int, rank: int, was_right: bool) -> None:
        """A continuation of `kind` at `rank` went on right, or did not."""
        rank = min(rank, len(SHARES) - 1)
        tries = self._tries[kind][rank] * MEMORY
        right = self.chances[kind][rank] * tries + was_right
        self._tries[kind][rank] = tries + 1
        self.chances[kind][rank] = min(right / (tries + 1), MOST_CERTAIN)


NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of nodes that are weighed against each other."""

FIRST = (4, 8)
"""Nodes of the first rounds, before any cost is known."""

SOME, MUCH = 1.3, 3.0
"""Tokens that the smallest of first trees must promise to be tried at all, and those that make it
needless to know a plain step's time."""

LARGER_EVERY = 24
"""Rounds after which the next larger size is tried, since a stall may have made it look slow."""

RETRY = 8
"""Rounds after which a tree is tried although all sizes look slow; doubled after each."""

WORTH_A_RETRY = 1.5
"""Tokens that the tree of a retry has to promise."""

FLOOR = 0.01
"""Least chance of a token that is weighed at all."""


class Experience:
    """What is learnt while decoding with drafts, kept from page to page if it is handed on.

    Attributes:
        trust: how often each kind of continuation is right.
        costs: seconds of a round by its rows and block.
    """

    def __init__(self) -> None:
        self.trust = Trust()
        self.costs = Costs()


class NodeCount:
    """Always the same number of nodes, whatever it costs; subclasses learn."""

    floor = 0.0

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def limit(self) -> int:
        """Nodes to grow for `choose`."""
        return self.largest

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        """Nodes to verify of each tree.

        Args:
            chances: of the nodes of each row's tree, falling.
        """
        return self.largest

    def observe(self, rows: int, nodes: int, seconds: float) -> None:
        """A round over `rows` trees of up to `nodes` nodes took `seconds`."""


class MeasuredNodes(NodeCount):
    """The number with the highest expected tokens a second, plain decoding included.

    The chance of each node is known before it is verified. So `n` nodes of each of `R` trees give

        R + (sum of the chances of the first n nodes of each tree)

    tokens in `V(R, 1 + n)` seconds, which is measured, against `R` in `V(R, 1)`. Drafts that are no
    good have small chances, so decoding is then plain, and it is not a moment longer than that.

    Args:
        largest: upper limit.
        experience: what is known of costs, and where more of it goes.
        trial_every: verify a small tree after so many plain rounds. For rules that accept what the
            target would not have said: a plain round has no evidence of that.
    """

    floor = FLOOR

    def __init__(
        self, largest: int, experience: Experience, trial_every: int | None = None
    ) -> None:
        super().__init__(largest)
        self.costs = experience.costs
        self.trial_every = trial_every
        self.sizes = [size for size in NODES if size < largest] + [largest]
        self._last, self._wait = FIRST[0], RETRY
        self._plain = 0  # rounds in a row

    def limit(self) -> int:
        """Up to two sizes above the last choice."""
        return min(self.largest, 2 * self._last)

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        most, costs = max(map(len, chances), default=0), self.costs
        if not most:
            return 0
        promised = 1 + sum(sum(row[: FIRST[0]]) for row in chances) / len(chances)
        drafted = costs.rounds - costs.plain_rounds
        if drafted < len(FIRST):
            first = min(FIRST[drafted], self.largest)
            return first if promised > SOME else self._retry(promised)
        if promised < MUCH and costs.is_plain_due(len(chances)):
            return 0
        best = self._best(chances, most)
        if not best:
            return self._retry(promised)
        if costs.rounds % LARGER_EVERY == 0:
            best = next((size for size in self.sizes if size > best), best)
        self._last, self._wait = max(best, FIRST[0]), RETRY
        return best

    def observe(self, rows: int, nodes: int, seconds: float) -> None:
        self._plain = 0 if nodes else self._plain + 1
        self.costs.add(rows, 1 + nodes, seconds)

    def _best(self, chances: Sequence[Sequence[float]], most: int) -> int:
        rows = len(chances)
        sums = [[0.0, *accumulate(row)] for row in chances]
        slowest = plain = self.costs.seconds(rows, 1)
        best, best_gain = 0, LEAST_GAIN
        for size in self.sizes:
            tokens = 1 + sum(row[min(size, len(row) - 1)] for row in sums) / rows
            # A larger block can't be faster; where it seems so, the clock was disturbed.
            slowest = max(slowest, self.costs.seconds(rows, 1 + min(size, most)))
            gain = tokens * plain / slowest
            if gain > best_gain:
                best, best_gain = size, gain
            if size >= most:
                break
        return best

    def _retry(self, promised: float) -> int:
        """Nodes of a tree that is slow as far as is known, but should have much accepted."""
        size = min(FIRST[0], self.largest)
        if self.trial_every is not None and self._plain >= self.trial_every:
            return size
        if self.costs.rounds % self._wait or promised < WORTH_A_RETRY:
            return 0
        self._wait *= 2
        return size
