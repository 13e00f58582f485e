"""Which blocks of a prediction belong to which of the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..libraries import needed

APART = 0.7
"""Normalised distance above which two texts have nothing to do with each other."""

WITHIN = 0.5
"""Share of a text's trigrams, or letters, that make it a part of a longer one."""


@dataclass(frozen=True)
class Match:
    """Blocks that belong together.

    Attributes:
        heard: places of the prediction's, in order; empty for a miss.
        meant: places of the truth's; empty for what nobody asked for.
        edits: Levenshtein distance of the texts, each side joined.
        length: of the longer one.
    """

    observed: tuple[int, ...]
    meant: tuple[int, ...]
    edits: int
    length: int

    @property
    def distance(self) -> float:
        return self.edits / self.length if self.length else 0.0


def match(observed: Sequence[str], meant: Sequence[str], marks: Sequence[Any]) -> list[Match]:
    """Assign the blocks of a prediction to those of the truth.

    One to one first, so that the sum of distances is least (Hungarian method), among pairs that
    are similar or one of which lies within the other. Then each block that is left joins the match
    of a neighbour if most of its letters are what was missing there; a prediction that divides its
    text otherwise is not wrong. Matches that stay too far apart are taken apart.

    Args:
        heard, meant: texts, none of them empty, in their order.
        marks: of the truth's; only equal ones are joined.

    Returns:
        Every block once, misses and surplus too.

    Raises:
        SoonerError: rapidfuzz or scipy is not installed.
    """
    sides = _Sides(observed, meant, marks)
    matches = _assigned(sides)
    while (better := _joined(sides, matches)) is not None:
        matches = better
    close = [pair for pair in matches if pair.distance <= APART]
    return close + _rest(sides, close)


class _Sides:
    """Both sides and the distance of parts of them."""

    def __init__(self, observed: Sequence[str], meant: Sequence[str], marks: Sequence[Any]) -> None:
        self.observed, self.meant, self.marks = observed, meant, marks
        self.levenshtein = needed("rapidfuzz.distance", "the edit distance").Levenshtein
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Match] = {}

    def match(self, observed: tuple[int, ...], meant: tuple[int, ...]) -> Match:
        """A match of these blocks; joining asks for the same ones again and again."""
        if (observed, meant) not in self._known:
            self._known[observed, meant] = self._match(observed, meant)
        return self._known[observed, meant]

    def _match(self, observed: tuple[int, ...], meant: tuple[int, ...]) -> Match:
        joined = "".join(self.observed[place] for place in observed)
        true = "".join(self.meant[place] for place in meant)
        edits = int(self.levenshtein.distance(joined, true))
        return Match(observed, meant, edits, max(len(joined), len(true)))


def _assigned(sides: _Sides) -> list[Match]:
    """One to one, the least sum of distances."""
    if not sides.observed or not sides.meant:
        return []
    optimize = needed("scipy.optimize", "the matching of blocks")
    process = needed("rapidfuzz.process", "the edit distance")
    letters = process.cdist(
        sides.observed, sides.meant, scorer=sides.levenshtein.normalized_distance, dtype=np.float32
    )  # [heard, meant]
    shared, shorter, longer = _trigrams_of(sides.observed, sides.meant)  # [heard, meant] each
    allowed = (letters <= APART) | (shared >= WITHIN * shorter)
    # Any short text is nearly a part of a long one by its letters; trigrams tell its own.
    costs = np.where(allowed, (letters + 1 - shared / longer) / 2, 1.0)
    pairs = zip(*optimize.linear_sum_assignment(costs), strict=True)
    return [sides.match((int(a),), (int(b),)) for a, b in pairs if allowed[a, b]]


def _trigrams_of(
    observed: Sequence[str], meant: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many trigrams two texts share, and how many the shorter and the longer one has."""
    grams_observed, true = (
        [_trigrams(text) for text in observed],
        [_trigrams(text) for text in meant],
    )
    names: dict[str, int] = {}
    for gram in (gram for grams in (*grams_observed, *true) for gram in grams):
        names.setdefault(gram, len(names))
    shared = (_incidence(grams_observed, names) @ _incidence(true, names).T).toarray()
    sizes = [len(grams) for grams in grams_observed], [len(grams) for grams in true]
    return shared, np.minimum.outer(*sizes), np.maximum.outer(*sizes)


def _incidence(rows: Sequence[frozenset[str]], names: Mapping[str, int]) -> Any:
    """Which text has which trigram, sparse `[texts, trigrams]`."""
    sparse = needed("scipy.sparse", "the matching of blocks")
    ends = np.cumsum([0, *(len(grams) for grams in rows)])
    columns = [names[gram] for grams in rows for gram in grams]
    ones = np.ones(len(columns), dtype=np.int32)
    return sparse.csr_array((ones, columns, ends), shape=(len(rows), len(names)))


def _trigrams(text: str) -> frozenset[str]:
    return frozenset(text[at : at + 3] for at in range(max(len(text) - 2, 1)))


def _joined(sides: _Sides, matches: list[Match]) -> list[Match] | None:
    """With one more block in each match that it helps, most helpful first; `None` if in none.

    A block helps if most of its letters find their place: some do in any text that has gaps.
    """
    options = sorted(_options(sides, matches), key=lambda option: -option[0])
    changed, used = dict[int, Match](), set[Match]()
    for _, place, block, grown in options:
        if place not in changed and block not in used:
            changed[place] = grown
            used.add(block)
    return [changed.get(n, block) for n, block in enumerate(matches)] if changed else None


def _options(sides: _Sides, matches: Sequence[Match]) -> Iterator[tuple[int, int, Match, Match]]:
    """Gain in letters, place of the match, the block, and the match with it."""
    rest = _rest(sides, matches)
    observed = {block.observed[0]: block for block in rest if block.observed}
    meant = {block.meant[0]: block for block in rest if block.meant}
    for place, neighbour in enumerate(matches):
        near = [observed.get(n) for n in (neighbour.observed[0] - 1, neighbour.observed[-1] + 1)]
        near += [meant.get(n) for n in (neighbour.meant[0] - 1, neighbour.meant[-1] + 1)]
        for block in near:
            grown = _grown(sides, neighbour, block) if block is not None else None
            if block is not None and grown is not None:
                gain = neighbour.edits - grown.edits
                if gain >= max(WITHIN * block.length, 1):
                    yield gain, place, block, grown


def _grown(sides: _Sides, neighbour: Match, block: Match) -> Match | None:
    """A match with a neighbour in it; `None` if the truth's marks differ."""
    if block.observed:
        return sides.match(tuple(sorted((*neighbour.observed, *block.observed))), neighbour.meant)
    if sides.marks[block.meant[0]] != sides.marks[neighbour.meant[0]]:
        return None
    return sides.match(neighbour.observed, tuple(sorted((*neighbour.meant, *block.meant))))


def _rest(sides: _Sides, matches: Sequence[Match]) -> list[Match]:
    """What no match holds, each alone."""
    used = {place for matched in matches for place in matched.observed}
    true = {place for matched in matches for place in matched.meant}
    surplus = [sides.match((n,), ()) for n in range(len(sides.observed)) if n not in used]
    return surplus + [sides.match((), (n,)) for n in range(len(sides.meant)) if n not in true]


def shifted(pair: Match, observed: Sequence[int], meant: Sequence[int]) -> Match:
    """Returns the match with places of longer lists, of which the sides were picked."""
    return replace(
        pair,
        observed=tuple(observed[place] for place in pair.observed),
        meant=tuple(meant[place] for place in pair.meant),
    )
