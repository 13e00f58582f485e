"""The tolerance of relaxed acceptance as given on the command line: bins, or mm and rad."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import SoonerError, unknown

if TYPE_CHECKING:
    from ...methods.tolerance import Tolerance
    from ...models.openvla.statistics import ActionStatistics, ActionTokens

UNITS = {
    "mm": 1e-3,
    "cm": 1e-2,
    "m": 1.0,
    "mrad": 1e-3,
    "rad": 1.0,
    "deg": math.pi / 180,
}
"""In metres and radians."""
DEFAULT_BINS = 9
"""The paper's choice for three of its four suites (table 2); its long one has 5."""


@dataclass(frozen=True)
class Allowance:
    """A tolerance before it is known which robot it is for.

    Args:
        bins: for all dimensions but the gripper, or one for each dimension.
        units: in metres and radians, one for each dimension, instead of `bins`.

    Raises:
        SoonerError: both of them.
    """

    bins: int | tuple[int, ...] = DEFAULT_BINS
    units: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.units is not None and self.bins != DEFAULT_BINS:
            raise SoonerError("tolerance: bins and units exclude each other; give one of them")

    @classmethod
    def parse(cls, text: str) -> Allowance:
        """Parses `9`, `9,9,9,5,5,5,0` or `5mm,5mm,5mm,0.02rad,0.02rad,0.02rad,0`.

        Raises:
            SoonerError: something else.
        """
        parts = [part.strip() for part in text.split(",")]
        if any(re.search(r"[a-z]", part) for part in parts):
            return cls(units=tuple(_length(part) for part in parts))
        try:
            bins = tuple(int(part) for part in parts)
        except ValueError:
            raise SoonerError(
                f"tolerance is '{text}'; give bins such as 9, one for each dimension such as "
                "9,9,9,0, or units such as 5mm,5mm,5mm,0"
            ) from None
        return cls(bins[0] if len(bins) == 1 else bins)

    def tolerance(self, tokens: ActionTokens, statistics: ActionStatistics) -> Tolerance:
        """Returns the tolerance for one robot.

        Raises:
            SoonerError: as `Tolerance`: negative, or not as many as the robot has dimensions.
        """
        from ...methods.tolerance import Tolerance

        if self.units is not None:
            return Tolerance.physical(tokens, statistics, self.units)
        return Tolerance(tokens, statistics.dims, self.bins)


def _length(text: str) -> float:
    """Returns metres or radians of `5mm`; a bare 0 needs no unit."""
    match = re.fullmatch(r"(-?[0-9.]+(?:e-?[0-9]+)?)\s*([a-z]*)", text)
    try:
        number, unit = float(match[1]), match[2]  # type: ignore[index]
    except (TypeError, ValueError):
        raise SoonerError(f"tolerance holds '{text}'; give a length such as 5mm") from None
    if not unit and number != 0:
        raise SoonerError(
            f"tolerance holds '{text}' without a unit beside others with one; give one of "
            f"{', '.join(UNITS)}"
        )
    if unit and unit not in UNITS:
        raise unknown("unit of a tolerance", unit, UNITS)
    return number * UNITS.get(unit, 1.0)
