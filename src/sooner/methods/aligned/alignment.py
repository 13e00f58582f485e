"""Where a text may be in its drafts: the continuations of its tokens so far, and how often those of
each kind go on right, learnt while decoding."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ..controller import Controller
from .index import END, DraftIndex

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
SURE = 3
"""Tokens that a continuation matches before it is taken for the place where the text is."""
LOST = 12
"""Unexpected tokens after which a draft is no longer expected to go on near the place of old."""
FOLLOWED = {*range(1, LONGEST + 1), REJOINED}
"""Kinds whose last token is a draft's."""
OPENINGS, CONTINUATIONS = 16, 24
"""Most unused drafts that may begin at one place, and most continuations of a text."""
STOP = -2
"""Ends a continuation behind which nothing is known; a lower token `t` stands for the openings
behind place `STOP - 1 - t`."""

Cursor = tuple[list[int], int, int]
"""A continuation: tokens, the place of the next one in them, and the kind of trust in it."""

Branch = tuple[int, int, list[Cursor]]
"""Continuations that share the next token: their best kind, their rank (0 for the best of all
siblings, else 1 and up within the kind), and each continuation behind that token."""


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


class Alignment:
    """Follows one row's text through its drafts and keeps the continuations, best first.

    Continuations come from, in the order of how often each kind was right so far:

    - the continuations before, as far as the tokens since agree with them. Where a draft ends,
      they go on with the openings of those not used yet, so a continuation may span two drafts;
    - matches of the last `reference_window` tokens, or of fewer where nothing matches (eq. 4, 5);
    - the draft that was followed, from around the place where the target said something else;
    - the openings of unused drafts: at the start, and where there is nothing else.

    Args:
        index: of the row's drafts.
        prior: learns how each continuation fared.
        joint: tokens that are expected between two drafts; what the target really writes there
            replaces them.

    Attributes:
        text: the row's tokens.
        cursors: the continuations.
    """

    def __init__(self, index: DraftIndex, prior: Prior, joint: Sequence[int] = ()) -> None:
        self.index, self.prior, self.joint = index, prior, list(joint)
        self.text: list[int] = []
        self.near = len(index.tokens)  # place where the text was last seen; now none
        self.anchor: tuple[int, int] | None = None  # last sure place, and tokens said since
        self._visited = bytearray(len(index.tokens))
        self._unused = list(index.starts)
        self.cursors: list[Cursor] = [
            (index.tokens, start, OPENING) for start in self._openings(self.near)
        ]

    def advance(self, new: Sequence[int]) -> None:
        """The row said `new`: follow it, learn from it, and look where it may go on."""
        seen: list[int] = []  # places in the drafts that it went through
        for token in new:
            if self.cursors:
                self._follow(token, seen)
            elif self.anchor is not None:
                self.anchor = (self.anchor[0], self.anchor[1] + 1)
            self.text.append(token)
        self._retire(seen)
        self.cursors = self._ranked(self._matches())

    def branches(self, cursors: Sequence[Cursor]) -> dict[int, Branch]:
        """Returns tokens that may come next (eq. 6), with the continuations that begin so."""
        branches: dict[int, Branch] = {}
        for tokens, place, kind in cursors:
            token = tokens[place]
            if token >= 0:
                _join(branches, token, kind, (tokens, place + 1, NEXT[kind]))
            elif token == END and kind in FOLLOWED and self.joint:
                joint = [*self.joint, STOP - 1 - place]
                _join(branches, joint[0], JOINED, (joint, 1, NEXT[JOINED]))
            elif token != STOP:  # the openings of unused drafts
                here, following = self.index.tokens, place if token == END else STOP - 1 - token
                opening = OPENING if kind in FOLLOWED or kind == JOINED else GLUED
                for start in self._openings(following):
                    _join(branches, here[start], opening, (here, start + 1, NEXT[opening]))
        return branches

    def _follow(self, token: int, seen: list[int]) -> None:
        """Keep the continuations that begin with `token`."""
        branches = self.branches(self.cursors)
        for other, (kind, rank, _) in branches.items():
            self.prior.observe(kind, rank, other == token)
        kind, _, self.cursors = branches.get(token, (NOWHERE, 0, []))
        if self.anchor is not None:
            place, since = self.anchor
            if kind in (GLUED, OPENING) and self.index.tokens[place] == END:
                self.joint = self.text[len(self.text) - since :]
            self.anchor = (place, since + 1)
        if self.cursors and self.cursors[0][0] is self.index.tokens:
            _, place, kind = self.cursors[0]  # the best continuation is in a draft
            seen.append(place - 1)
            self.near = place
            if kind >= SURE or self.anchor is None:
                self.anchor = (place, 0)

    def _matches(self) -> Iterator[Cursor]:
        """Continuations of the text, some of them more than once."""
        index = self.index
        yield from self.cursors
        for place in index.matches(self.text, self.near):
            yield index.tokens, place, index.agreement(self.text, place, LONGEST)
        if self.anchor is not None and 0 < self.anchor[1] <= LOST:
            place, since = self.anchor
            end = index.end_of(place)
            for kind, ahead in _resumptions(since):
                at = min(place + ahead, end)
                # One token that matches tells little, but for just where it would be expected.
                is_match = at > place and index.agreement(self.text, at, 1)
                yield index.tokens, at, REJOINED if is_match else kind

    def _ranked(self, cursors: Iterator[Cursor]) -> list[Cursor]:
        """Returns the best ones, each once; openings where there are none."""
        chances, here = self.prior.chances, self.index.tokens
        best: dict[int, Cursor] = {}
        for cursor in cursors:
            key = cursor[1] if cursor[0] is here else -cursor[2]
            if key not in best or chances[best[key][2]][0] < chances[cursor[2]][0]:
                best[key] = cursor
        if not best:
            return [(here, start, NOWHERE) for start in self._openings(self.near)]
        return sorted(best.values(), key=self._rank)[:CONTINUATIONS]

    def _rank(self, cursor: Cursor) -> tuple[float, int, int]:
        tokens, place, kind = cursor
        chance = -self.prior.chances[kind][0]
        if tokens is not self.index.tokens:
            return chance, 0, 0
        return chance, self._visited[place], (place - self.near) % len(tokens)

    def _openings(self, place: int) -> list[int]:
        """Returns where unused drafts begin, those behind `place` first; the one around it and its
        alternatives are left out."""
        if not self._unused:
            return []
        index = bisect_left(self._unused, place)
        around: list[int] = []
        if place < len(self.index.tokens):
            around = self.index.siblings[self.index.start_of(place)]
        limit = OPENINGS + len(around)
        ahead = self._unused[index : index + limit]
        if len(ahead) < limit:
            ahead = ahead + self._unused[: min(index, limit - len(ahead))]
        return [start for start in ahead if start not in around][:OPENINGS]

    def _retire(self, seen: Sequence[int]) -> None:
        """Mark places; a region is used, with all its alternatives, once the text has gone through
        half of one that it followed, which may be in pieces of several."""
        start = end = -1
        for place in seen:
            self._visited[place] = 1
            if not start <= place < end:
                start, end = self.index.start_of(place), self.index.end_of(place)
            siblings = self.index.siblings[start]
            if start in self._unused and self._is_used(siblings):
                self._unused = [other for other in self._unused if other not in siblings]

    def _is_used(self, siblings: Sequence[int]) -> bool:
        spans = [(start, self.index.end_of(start)) for start in siblings]
        gone = [self._visited.count(1, *span) for span in spans]
        return any(
            count and 2 * sum(gone) >= end - start
            for count, (start, end) in zip(gone, spans, strict=True)
        )


def _join(branches: dict[int, Branch], token: int, kind: int, cursor: Cursor) -> None:
    """Add a continuation to the branch that begins with `token`; each place once, the best first.

    Regions that say the same (cells, bullets) end and open into one another: twice the same place
    at every end would be exponentially many along a branch.
    """
    branch = branches.get(token)
    if branch is None:
        better = 1 + sum(other == kind for other, _, _ in branches.values()) if branches else 0
        branches[token] = (kind, better, [cursor])
    elif all(cursor[1] != item[1] or cursor[0] is not item[0] for item in branch[2]):
        branch[2].append(cursor)


def _resumptions(since: int) -> Iterator[tuple[int, int]]:
    """Yields where a draft may go on that differed `since` tokens ago: kinds, and tokens ahead."""
    yield INSTEAD, since
    yield BESIDES, 0
    yield LEFT_OUT, since + 1
    if since > 1:
        yield SHORTER, since - 1
