"""The patterns of sparse attention by name, and boundaries, which hold one for each modality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from ...errors import SoonerError, unknown
from ..modality import MODALITIES, PromptLayout
from ..plane import Plane, by_pair, by_query
from .base import Pattern
from .kinds import AShape, Dense, Grid, Strided, StridedFixed, TriShape, VerticalSlash


@dataclass(frozen=True)
class Boundary:
    """Inner patterns behind a boundary; what is not named is dense.

    Args:
        inner: pattern by modality, or by `"query:key"` pair of modalities.
    """

    name: ClassVar[str] = ""
    inner: Mapping[str, Pattern] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = self.regions(tuple(MODALITIES))
        for name, pattern in self.inner.items():
            if name not in known:
                raise unknown(f"region of pattern {self.name}", str(name), known)
            if not isinstance(pattern, Pattern):
                raise SoonerError(
                    f"{self.name}: {name} is {pattern!r}; a boundary holds plain patterns"
                )
        object.__setattr__(self, "inner", MappingProxyType(dict(self.inner)))

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.inner.items())))

    def regions(self, present: tuple[str, ...]) -> tuple[str, ...]:
        """Returns names of the regions of a prompt with these modalities."""
        raise NotImplementedError

    def plane(self, layout: PromptLayout, region: str) -> Plane:
        """Returns the plane of one region."""
        raise NotImplementedError

    def parts(self, layout: PromptLayout) -> list[tuple[str, Pattern]]:
        """Returns the regions of this prompt, which cover it without overlap, and their
        patterns.
        """
        return [(name, self.inner.get(name, Dense())) for name in self.regions(layout.present)]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for a pattern file."""
        inner = {name: pattern.to_dict() for name, pattern in self.inner.items()}
        return {"pattern": self.name, "inner": inner}

    def __str__(self) -> str:
        inner = "; ".join(f"{name} {pattern}" for name, pattern in self.inner.items())
        return f"{self.name}({inner})"


@dataclass(frozen=True)
class QBoundary(Boundary):
    """Each modality's queries have a pattern of their own (algorithm 2).

    Queries are grouped by modality, keys stay where they are: distances are those of the prompt,
    and the lines of a modality go on behind an interruption by another.

    Args:
        inner: pattern by modality, such as `{"video": Grid(), "text": VerticalSlash()}`.
    """

    name: ClassVar[str] = "q-boundary"
    __hash__ = Boundary.__hash__

    def regions(self, present: tuple[str, ...]) -> tuple[str, ...]:
        return present

    def plane(self, layout: PromptLayout, region: str) -> Plane:
        return by_query(layout, region)


@dataclass(frozen=True)
class TwoDBoundary(Boundary):
    """Each pair of modalities has a pattern of its own (algorithm 3).

    Queries and keys are grouped by modality: distances count tokens of the key's modality.

    Args:
        inner: pattern by `"query:key"`, such as `{"video:video": Grid(), "text:video": Dense()}`.
    """

    name: ClassVar[str] = "2d-boundary"
    __hash__ = Boundary.__hash__

    def regions(self, present: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{query}:{key}" for query in present for key in present)

    def plane(self, layout: PromptLayout, region: str) -> Plane:
        query, key = region.split(":")
        return by_pair(layout, query, key)


HeadPattern = Pattern | Boundary
"""What one head of one layer runs."""

PATTERNS: dict[str, type[Pattern]] = {
    kind.name: kind
    for kind in (Dense, AShape, TriShape, VerticalSlash, Grid, StridedFixed, Strided)
}
BOUNDARIES: dict[str, type[Boundary]] = {kind.name: kind for kind in (QBoundary, TwoDBoundary)}


def pattern_from_dict(options: dict[str, Any]) -> HeadPattern:
    """Reads a pattern from what `to_dict` wrote.

    Raises:
        SoonerError: names an unknown pattern, option or region, with the nearest known one.
    """
    if not isinstance(options, dict) or "pattern" not in options:
        raise SoonerError(f"a pattern is an object with the key 'pattern', not {options!r}")
    name, rest = options["pattern"], {k: v for k, v in options.items() if k != "pattern"}
    if name in PATTERNS:
        return PATTERNS[name].from_dict(rest)
    if name not in BOUNDARIES:
        raise unknown("pattern", str(name), [*PATTERNS, *BOUNDARIES])
    inner = {}
    for region, option in rest.get("inner", {}).items():
        plain = pattern_from_dict(option)
        if not isinstance(plain, Pattern):
            raise SoonerError(f"{name}: {region} is a boundary itself; boundaries do not nest")
        inner[region] = plain
    return BOUNDARIES[name](inner)


__all__ = [
    "BOUNDARIES",
    "PATTERNS",
    "AShape",
    "Boundary",
    "Dense",
    "Grid",
    "HeadPattern",
    "Pattern",
    "QBoundary",
    "Strided",
    "StridedFixed",
    "TriShape",
    "TwoDBoundary",
    "VerticalSlash",
    "pattern_from_dict",
]
