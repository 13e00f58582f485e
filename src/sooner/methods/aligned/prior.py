"""How often continuations of each kind go on right, learnt while decoding."""

from __future__ import annotations

from ..controller import Controller

LONGEST = 6
"""Matches of more tokens are not told apart."""
OPENING = 0
"""First token of an unused draft, where one ends or a text begins; 1 to `LONGEST` are the tokens
that match in front of a continuation."""
NOWHERE = LONGEST + 1
"""First token of an unused draft, for want of anything better."""
JOINED = LONGEST + 2
"""What stood between two drafts before, where one ends."""
GLUED = LONGEST + 3
"""First token of an unused draft, where one ended and the target has generated something else."""
INSTEAD, BESIDES, LEFT_OUT, SHORTER = range(LONGEST + 4, LONGEST + 8)
"""Behind a token that the draft did not expect: it stood for as many of the draft's as were said
since, for none, for one more, or for one less."""
REJOINED = LONGEST + 8
"""Where one of those four was right, or an opening where one was due."""
KINDS = LONGEST + 9
NEXT = (REJOINED, *range(2, LONGEST + 1), LONGEST, 1, JOINED, 2, *[REJOINED] * 4, 5)
"""Kind of a continuation after one more of its tokens turned out right."""
FIRST_GUESS = {
    **{OPENING: 0.6, NOWHERE: 0.05, JOINED: 0.7, GLUED: 0.4},
    **{1: 0.25, 2: 0.6, 3: 0.7, 4: 0.75, 5: 0.8, 6: 0.94},
    **{INSTEAD: 0.35, BESIDES: 0.2, LEFT_OUT: 0.25, SHORTER: 0.08, REJOINED: 0.8},
}
"""Chance that the best continuation of each kind goes on right, before anything was seen."""
SHARES = (1.0, 0.5, 0.2, 0.1, 0.05)
"""The prior for continuations that are not the best of all, but the first, second, ... of
their kind, as shares of it."""
PRIOR, MEMORY = 4.0, 0.98
"""Observations that a first guess counts for; weight that they keep from one to the next."""
MAX_CERTAIN = 0.995
NAMES = 64
"""Drafters that are told apart; of more, the one that came first is forgotten."""


class Prior:
    """Chance that a continuation goes on right, by its kind and its rank among its siblings.

    A kind that is the second best somewhere is less likely right there than where it is the best.
    The target's own text is the evidence, whatever was drafted: bad drafts cost nothing to verify,
    and good ones are noticed at once.

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
        self._priors: dict[str, Prior] = {}

    def of(self, drafter: str) -> Prior:
        """Returns the prior of one drafter's drafts; an empty name is none."""
        if not drafter:
            return self.prior
        if drafter not in self._priors and len(self._priors) >= NAMES:
            del self._priors[next(iter(self._priors))]
        return self._priors.setdefault(drafter, Prior())
