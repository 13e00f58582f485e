"""What `sooner bench scale` runs, and the goals that it is held to; fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass

SPEEDUP = 1.7
"""Pages a second of two workers over those of one, at least."""
OVERHEAD = 0.15
"""More seconds a page by Ray than by the plain command at one worker, at most; start-up apart."""
ERROR = 0.15
"""Relative difference of two workers' predicted pages a second from those measured, at most."""


@dataclass(frozen=True)
class ScaleArm:
    """Workers of a kind. Each has one core, for its reading, OCR, model and writing.

    Attributes:
        workers: how many: processes of the plain command, or Ray's parser actors.
        is_ray: `sooner parse --ray`, whose driver and servers are on the workers' cores, too.
    """

    workers: int
    is_ray: bool


ARMS: dict[str, ScaleArm] = {
    "plain-1": ScaleArm(1, False),
    "plain-2": ScaleArm(2, False),
    "ray-1": ScaleArm(1, True),
    "ray-2": ScaleArm(2, True),
}


@dataclass(frozen=True)
class ScaleBenchSettings:
    """Settings of a run.

    Attributes:
        arms: of `ARMS`, in the order of the first repeat; every other one goes backwards.
        pages: of a long run, an even number of documents.
        short: pages of a short run, which tells the start-up from the pages; 0 leaves it out.
        document_pages: of each PDF.
        repeats: of the long runs.
        drafter, model: as `sooner parse` takes them.
        in_flight: pages at once in a parser of Ray's; the plain command has one on CPUs.
        seed: of the pages.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    pages: int = 64
    short: int = 8
    document_pages: int = 2
    repeats: int = 1
    drafter: str = "ocr"
    model: str = "miniature"
    in_flight: int = 1
    seed: int = 20_261_123
