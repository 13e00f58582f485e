"""How many draft tokens to verify, and how far continuations of each kind can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..sizing.costs import Costs, rounded
from ..sizing.pauses import MIN_GAIN

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
"""The prior for continuations that are not the best of all, but the first, second, ... of
their kind, as shares of it.
"""

PRIOR, MEMORY = 4.0, 0.98
"""Observations that a first guess counts for; weight that they keep from one to the next."""

MAX_CERTAIN = 0.995


WORTHLESS = 0.05
"""Draft tokens of a row and round, promised by their chances, below which a drafter is idle: to
follow a row through its drafts takes as long as those are worth."""

EXPECTED, ROUNDS = 0.5, 0.99
"""What a drafter is expected to promise before anything is known, and the weight that this keeps
from one of its rows' rounds to the next: 230 rounds that promise nothing make it idle."""

RIGHT, WOKEN = 0.5, 0.2
"""Tokens that a tree of an idle drafter must promise to wake it at once, and what it is then
expected to promise."""

FIRST_LOOK, LAST_LOOK = 16, 64
"""Tokens of a row after which an idle drafter's drafts are looked at again; doubled each time."""

FOLLOWED_EVERY = 8
"""Rows of an idle drafter of which one is followed from its first token on."""

NAMES = 64
"""Drafters that are told apart; of more, the one that came first is forgotten."""


class Prior:
    """Chance that a continuation goes on right, by its kind and its rank among its siblings.

    A kind that is the second best somewhere is less likely right there than where it is the best.

    The target's own text tells, whatever was drafted: a round that verified nothing has the same
    evidence about what would have been accepted as one that verified a large tree. So bad drafts
    cost nothing to verify, and good ones are noticed at once.

    What they do cost is the host's time, in every round and for each row. So the drafts of one
    drafter may become *idle*: rows are no longer followed through them round by round, but looked
    at after some tokens, all of which tell as much as before. That wakes the drafter for all rows.

    Args:
        may_idle: these are the drafts of one drafter, so that what some were worth tells of others.

    Attributes:
        chances: `[kind][rank]`; all ranks from `len(SHARES) - 1` on are one.
        promised: draft tokens of a row and round that were worth verifying, a moving mean.
    """

    def __init__(self, may_idle: bool = False) -> None:
        self.chances = [[FIRST_GUESS[kind] * share for share in SHARES] for kind in range(KINDS)]
        self._tries = [[PRIOR] * len(SHARES) for _ in range(KINDS)]
        self.may_idle, self.promised = may_idle, EXPECTED
        self._begun = 0  # rows, since it is idle

    @property
    def is_idle(self) -> bool:
        """Whether its drafts are not worth the time to follow them."""
        return self.may_idle and self.promised < WORTHLESS

    def begin(self) -> bool:
        """A row begins; whether it is to be followed although the drafter is idle."""
        self._begun = self._begun + 1 if self.is_idle else 0
        return self._begun > 0 and self._begun % FOLLOWED_EVERY == 0

    def promise(self, tokens: float) -> None:
        """In a round of a row that was followed, the chances of the nodes that paid sum up to
        `tokens`; of an idle drafter, of those that would pay if all rows had such a tree."""
        was_idle = self.is_idle
        self.promised = ROUNDS * self.promised + (1 - ROUNDS) * tokens
        if was_idle and tokens >= RIGHT:
            self.promised = max(self.promised, WOKEN)

    def observe(self, kind: int, rank: int, was_right: bool) -> None:
        """A continuation of `kind` at `rank` went on right, or did not."""
        rank = min(rank, len(SHARES) - 1)
        tries = self._tries[kind][rank] * MEMORY
        right = self.chances[kind][rank] * tries + was_right
        self._tries[kind][rank] = tries + 1
        self.chances[kind][rank] = min(right / (tries + 1), MAX_CERTAIN)


NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of nodes that are weighed against each other."""

FIRST = (4, 8)
"""Nodes of the first rounds of one row, before any cost is known; of several rows together."""

SOME, MUCH = 1.3, 3.0
"""Tokens that the smallest of first trees must promise to be tried at all, and those that make it
needless to know a plain step's time."""

LARGER_EVERY = 24
"""Rounds after which the next larger size is tried, since a stall may have made it look slow."""

RETIMED = 0.005
"""Share of the time that plain rounds may lose which time again what drafting has to beat. A draft
that gains little is compared with plain rounds often, since a disturbed clock may have made it."""

RETRY = 8
"""Rounds after which a tree is tried although all sizes look slow; doubled after each."""

WORTH_A_RETRY = 1.5
"""Tokens that the tree of a retry has to promise."""

FLOOR = 0.01
"""Least chance of a token that is weighed at all."""


class Experience:
    """What is learnt while decoding with drafts, kept from page to page if it is handed on.

    Attributes:
        trust: how often each kind of continuation is right, of drafts that nobody is named for.
        costs: seconds of a round by its rows and block.
    """

    def __init__(self) -> None:
        self.prior = Prior()
        self.costs = Costs()
        self._trusts: dict[str, Prior] = {}

    def of(self, drafter: str) -> Prior:
        """Returns the prior of one drafter's drafts; an empty name is none."""
        if not drafter:
            return self.prior
        if drafter not in self._trusts and len(self._trusts) >= NAMES:
            del self._trusts[next(iter(self._trusts))]
        return self._trusts.setdefault(drafter, Prior(may_idle=True))


class NodeCount:
    """Always the same number of nodes, whatever it costs; subclasses learn."""

    floor = 0.0
    may_idle = False
    """Whether drafts of an idle drafter are left alone."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def limit(self) -> int:
        """Returns nodes to grow for `choose`."""
        return self.largest

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        """Returns nodes to verify of each tree.

        Args:
            chances: of the nodes of each row's tree, falling.
        """
        return self.largest

    def paying(self, chances: Sequence[float], rows: int) -> int:
        """Nodes that would be verified if each of `rows` trees had such chances."""
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
        self.trial_every, self.may_idle = trial_every, trial_every is None
        self.sizes = [size for size in NODES if size < largest] + [largest]
        self._last = FIRST[0]
        self._waits: dict[int, int] = {}  # rounds between retries, by rows: what loses beside
        # others may pay for the one that is left
        self._plain = 0  # rounds in a row

    def limit(self) -> int:
        """Up to two sizes above the last choice."""
        return min(self.largest, 2 * self._last)

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        limit, costs = max(map(len, chances), default=0), self.costs
        if not limit:
            return 0
        promised = 1 + sum(sum(row[: FIRST[0]]) for row in chances) / len(chances)
        drafted = costs.rounds - costs.plain_rounds
        if drafted < len(FIRST):
            first = min(max(FIRST[drafted] // len(chances), 1 + drafted), self.largest)
            return first if promised > SOME else self._retry(promised, len(chances))
        if promised < MUCH and costs.is_plain_due(len(chances)):
            return 0
        best, gain = self._best(chances, limit)
        if not best:
            return self._retry(promised, len(chances))
        if promised < MUCH and costs.since_plain(len(chances)) >= (gain - 1) / RETIMED:
            return 0
        if costs.rounds % LARGER_EVERY == 0:
            best = next((size for size in self.sizes if size > best), best)
        self._last = max(best, FIRST[0])
        self._waits.pop(rounded(len(chances)), None)
        return best

    def observe(self, rows: int, nodes: int, seconds: float) -> None:
        self._plain = 0 if nodes else self._plain + 1
        self.costs.add(rows, 1 + nodes, seconds)

    def paying(self, chances: Sequence[float], rows: int) -> int:
        if not chances or not self.costs.plain_rounds:
            return 0
        return self._best([chances] * rows, len(chances))[0]

    def _best(self, chances: Sequence[Sequence[float]], limit: int) -> tuple[int, float]:
        """The number of nodes that pays most, and speed as a multiple of plain decoding's."""
        rows = len(chances)
        sums = [[0.0, *accumulate(row)] for row in chances]
        slowest = plain = self.costs.seconds(rows, 1)
        best, best_gain = 0, MIN_GAIN
        for size in self.sizes:
            tokens = 1 + sum(row[min(size, len(row) - 1)] for row in sums) / rows
            # A larger block can't be faster; where it seems so, the clock was disturbed.
            slowest = max(slowest, self.costs.seconds(rows, 1 + min(size, limit)))
            gain = tokens * plain / slowest
            if gain > best_gain:
                best, best_gain = size, gain
            if size >= limit:
                break
        return best, best_gain

    def _retry(self, promised: float, rows: int) -> int:
        """Returns nodes of a tree that is slow as far as is known, but should have much
        accepted.
        """
        size = min(FIRST[0], self.largest)
        if self.trial_every is not None and self._plain >= self.trial_every:
            return size
        wait = self._waits.get(rounded(rows), RETRY)
        if self.costs.rounds % wait or promised < WORTH_A_RETRY:
            return 0
        self._waits[rounded(rows)] = 2 * wait
        return size
