"""How often continuations of each kind go on right, learnt while decoding."""

from __future__ import annotations

from ..controller import Controller

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
"""First token of an unused draft, where one ended and the target has generated something else."""

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


class Experience:
    """What is learnt while decoding with drafts, kept from page to page if it is handed on.

    Attributes:
        prior: how often each kind of continuation is right, of drafts that nobody is named for.
        controller: of the number of nodes, with the times of rounds so far.
    """

    def __init__(self) -> None:
        self.prior = Prior()
        self.controller: Controller[int] = Controller("nodes")
        self._trusts: dict[str, Prior] = {}

    def of(self, drafter: str) -> Prior:
        """Returns the prior of one drafter's drafts; an empty name is none."""
        if not drafter:
            return self.prior
        if drafter not in self._trusts and len(self._trusts) >= NAMES:
            del self._trusts[next(iter(self._trusts))]
        return self._trusts.setdefault(drafter, Prior(may_idle=True))
