"""The patterns of sparse attention, one frozen dataclass each."""

from __future__ import annotations

from typing import Any

from ...errors import SoonerError, unknown
from .base import Pattern
from .boundary import Boundary, QBoundary, TwoDBoundary
from .grid import Grid
from .static import AShape, Dense, Strided, StridedFixed, TriShape, VerticalSlash

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
