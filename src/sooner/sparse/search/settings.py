"""What a search is asked for."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from ...errors import SoonerError, unknown

COSTS = ("auto", "measured", "flops")


@dataclass(frozen=True)
class SearchSettings:
    """How patterns are searched.

    Attributes:
        budget: most that a head may cost, as a share of dense attention; `None` is that of an
            A-shape with 1k global and 4k local tokens in 25k, as in the paper (appendix C.5).
        max_error: heads whose relative output error stays above it are left dense.
        min_recall: heads whose recall stays below it are left dense.
        queries: of each modality that candidates are scored on.
        boundaries: whether patterns with modality boundaries are tried.
        extended: whether candidates beyond the paper's table 3 are tried; see `Space`.
        max_stride: longest stride of a grid.
        cost: what candidates are made comparable by: their time on the device (`"measured"`), the
            pairs that they compute (`"flops"`), or time where there is a GPU (`"auto"`): CPUs that
            do other things meanwhile would blur it.
        break_even: whether to measure the length from which the patterns are faster than dense
            attention.

    Raises:
        SoonerError: a value out of range.
    """

    budget: float | None = None
    max_error: float = 0.5
    min_recall: float = 0.0
    queries: int = 128
    boundaries: bool = True
    extended: bool = True
    max_stride: int = 1024
    cost: str = "auto"
    break_even: bool = True

    def __post_init__(self) -> None:
        if self.budget is not None:
            self._share("budget", self.budget, above=0)
        self._share("min_recall", self.min_recall)
        if not (isinstance(self.max_error, int | float) and self.max_error >= 0):
            raise SoonerError(f"max_error is {self.max_error!r}; it is a number of 0 or more")
        if self.cost not in COSTS:
            raise unknown("cost", str(self.cost), COSTS)
        for name, least in (("queries", 1), ("max_stride", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise SoonerError(f"{name} is {value!r}; it is a whole number of {least} or more")

    def _share(self, name: str, value: Any, above: float = -1.0) -> None:
        is_number = isinstance(value, int | float) and math.isfinite(value)
        if not is_number or not (0 <= value <= 1) or value <= above:
            bound = "above 0 and at most 1" if above == 0 else "between 0 and 1"
            raise SoonerError(f"{name} is {value!r}; it is a share {bound}")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
