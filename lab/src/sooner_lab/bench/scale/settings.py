"""What `sooner bench scale` runs, and the goals that it is held to; fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import check_fields, option

from ..fields import names

SPEEDUP = 1.7
"""Pages a second of two workers over those of one, at least."""
OVERHEAD = 0.15
"""More seconds a page by Ray than by the plain command at one worker, at most; start-up apart."""
ERROR = 0.15
"""Relative difference of two workers' predicted pages a second from those measured, at most."""

ARMS = {"plain-1": 1, "plain-2": 2, "ray-1": 1, "ray-2": 2}
"""Workers of each arm, a core each: processes of the plain command, or Ray's parser actors."""


@dataclass(frozen=True)
class ScaleBenchSettings:
    """Parse scans by one worker and by two, each on a core of its own, with Ray and without.

    Pages a second are those of long runs beyond a short one, so start-up is told apart. With
    --add runs are added to those of --json's FILE.

    Attributes:
        arms: Only these, in the order of the first repeat; every other one goes backwards.
        pages: Pages of a long run, an even number of documents.
        short: Pages of a short run, which tells the start-up from the pages; 0 leaves it out.
        document_pages: Pages of each PDF.
        repeats: How often the long runs are made; 0: short ones alone.
        drafter: As `sooner parse` takes it.
        model: As `sooner parse` takes it.
        in_flight: Pages at once in a parser of Ray's; the plain command has one on CPUs.
        seed: Of the pages.
    """

    arms: tuple[str, ...] = names("arm", tuple(ARMS))
    pages: int = option(64, 1)
    short: int = option(8, 0)
    document_pages: int = option(2, 1)
    repeats: int = option(1, 0)
    drafter: str = "ocr"
    model: str = "miniature"
    in_flight: int = option(1, 1)
    seed: int = 20_261_123

    def __post_init__(self) -> None:
        check_fields(self)
