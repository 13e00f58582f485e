"""How sparse patterns are searched: frozen, checked when made. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import check_fields, option

COSTS = ("auto", "measured", "flops")


@dataclass(frozen=True)
class SearchSettings:
    """How patterns are searched.

    Attributes:
        budget: most that a head may cost, as a share of dense attention; by default that of an
            A-shape with 1k global and 4k local tokens in 25k, as in the paper (appendix C.5).
        max_error: heads whose relative output error stays above it are left dense.
        min_recall: heads whose recall stays below it are left dense.
        queries: of each modality that candidates are scored on.
        last: last queries of the prompt, those of the question. The error of a pattern is that over
            the whole prompt or that of the worst tenth of these, whichever is greater: a head that
            retrieves a fact does so in few queries, which a mean loses. 0 takes the mean alone.
        boundaries: try patterns with modality boundaries.
        cost: what candidates are made comparable by: their time on the device (`measured`), the
            pairs that they compute (`flops`), or time where there is a GPU (`auto`): CPUs that
            do other things meanwhile would blur it.
        break_even: measure the length from which the patterns are faster than dense attention.

    Raises:
        SoonerError: a value out of range.
    """

    budget: float | None = option(None, 0, 1, above=True, metavar="SHARE")
    max_error: float = option(0.5, 0)
    min_recall: float = option(0.0, 0, 1)
    queries: int = option(128, 1)
    last: int = option(64, 0)
    boundaries: bool = True
    cost: str = option("auto", known=COSTS)
    break_even: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
