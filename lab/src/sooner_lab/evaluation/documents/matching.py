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

    heard: tuple[int, ...]
    meant: tuple[int, ...]
    edits: int
    length: int

    @property
    def distance(self) -> float:
        return self.edits / self.length if self.length else 0.0


def match(heard: Sequence[str], meant: Sequence[str], marks: Sequence[Any]) -> list[Match]:
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
    sides = _Sides(heard, meant, marks)
    matches = _assigned(sides)
    while (better := _joined(sides, matches)) is not None:
        matches = better
    kept = [one for one in matches if one.distance <= APART]
    return kept + _rest(sides, kept)


class _Sides:
    """Both sides and the distance of parts of them."""

    def __init__(self, heard: Sequence[str], meant: Sequence[str], marks: Sequence[Any]) -> None:
        self.heard, self.meant, self.marks = heard, meant, marks
        self.levenshtein = needed("rapidfuzz.distance", "the edit distance").Levenshtein
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Match] = {}

    def match(self, heard: tuple[int, ...], meant: tuple[int, ...]) -> Match:
        """A match of these blocks; joining asks for the same ones again and again."""
        if (heard, meant) not in self._known:
            self._known[heard, meant] = self._match(heard, meant)
        return self._known[heard, meant]

    def _match(self, heard: tuple[int, ...], meant: tuple[int, ...]) -> Match:
        said = "".join(self.heard[place] for place in heard)
        true = "".join(self.meant[place] for place in meant)
        edits = int(self.levenshtein.distance(said, true))
        return Match(heard, meant, edits, max(len(said), len(true)))


def _assigned(sides: _Sides) -> list[Match]:
    """One to one, the least sum of distances."""
    if not sides.heard or not sides.meant:
        return []
    optimize = needed("scipy.optimize", "the matching of blocks")
    process = needed("rapidfuzz.process", "the edit distance")
    letters = process.cdist(
        sides.heard, sides.meant, scorer=sides.levenshtein.normalized_distance, dtype=np.float32
    )  # [heard, meant]
    shared, shorter, longer = _trigrams_of(sides.heard, sides.meant)  # [heard, meant] each
    allowed = (letters <= APART) | (shared >= WITHIN * shorter)
    # Any short text is nearly a part of a long one by its letters; trigrams tell its own.
    costs = np.where(allowed, (letters + 1 - shared / longer) / 2, 1.0)
    pairs = zip(*optimize.linear_sum_assignment(costs), strict=True)
    return [sides.match((int(a),), (int(b),)) for a, b in pairs if allowed[a, b]]


def _trigrams_of(
    heard: Sequence[str], meant: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many trigrams two texts share, and how many the shorter and the longer one has."""
    said, true = [_trigrams(text) for text in heard], [_trigrams(text) for text in meant]
    names: dict[str, int] = {}
    for gram in (gram for grams in (*said, *true) for gram in grams):
        names.setdefault(gram, len(names))
    shared = (_incidence(said, names) @ _incidence(true, names).T).toarray()
    sizes = [len(grams) for grams in said], [len(grams) for grams in true]
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
    for _, place, one, grown in options:
        if place not in changed and one not in used:
            changed[place] = grown
            used.add(one)
    return [changed.get(n, one) for n, one in enumerate(matches)] if changed else None


def _options(sides: _Sides, matches: Sequence[Match]) -> Iterator[tuple[int, int, Match, Match]]:
    """Gain in letters, place of the match, the block, and the match with it."""
    rest = _rest(sides, matches)
    heard = {one.heard[0]: one for one in rest if one.heard}
    meant = {one.meant[0]: one for one in rest if one.meant}
    for place, beside in enumerate(matches):
        near = [heard.get(n) for n in (beside.heard[0] - 1, beside.heard[-1] + 1)]
        near += [meant.get(n) for n in (beside.meant[0] - 1, beside.meant[-1] + 1)]
        for one in near:
            grown = _grown(sides, beside, one) if one is not None else None
            if one is not None and grown is not None:
                gain = beside.edits - grown.edits
                if gain >= max(WITHIN * one.length, 1):
                    yield gain, place, one, grown


def _grown(sides: _Sides, beside: Match, one: Match) -> Match | None:
    """A match with a neighbour in it; `None` if the truth's marks differ."""
    if one.heard:
        return sides.match(tuple(sorted((*beside.heard, *one.heard))), beside.meant)
    if sides.marks[one.meant[0]] != sides.marks[beside.meant[0]]:
        return None
    return sides.match(beside.heard, tuple(sorted((*beside.meant, *one.meant))))


def _rest(sides: _Sides, matches: Sequence[Match]) -> list[Match]:
    """What no match holds, each alone."""
    said = {place for one in matches for place in one.heard}
    true = {place for one in matches for place in one.meant}
    surplus = [sides.match((n,), ()) for n in range(len(sides.heard)) if n not in said]
    return surplus + [sides.match((), (n,)) for n in range(len(sides.meant)) if n not in true]


def shifted(one: Match, heard: Sequence[int], meant: Sequence[int]) -> Match:
    """The same match with places of longer lists, of which the sides were picked."""
    return replace(
        one,
        heard=tuple(heard[place] for place in one.heard),
        meant=tuple(meant[place] for place in one.meant),
    )
