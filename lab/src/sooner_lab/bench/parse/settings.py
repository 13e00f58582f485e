"""What `sooner bench parse` measures, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sooner.checks import option

from ..fields import names
from ..settings import BenchSettings

ARMS = (
    *("plain", "hf", "hf-prompt-lookup", "prompt-lookup", "speculative"),
    *("hsd-page", "hsd-page-relaxed", "hsd", "hsd-relaxed"),
)
"""`plain` is what all others are held against; `-page` verifies on the page alone (stage 2),
without it regions come first (stage 1); `-relaxed` has the paper's tolerance."""


@dataclass(frozen=True)
class ParseBenchSettings(BenchSettings):
    """Time the arms on held-out pages, real OCR being the drafter.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.

    Attributes:
        model: parser; without it, the document miniature with its draft.
        draft: of the speculative arm; by default the miniature's.
        prompt: what the model is asked; by default its family's way.
        form: how it answers; by default its family's way.
        arms: only these arms (plain is always in).
        pages: held-out pages of the arms; ids are compared with plain decoding's on each.
        repeats: timed runs of each arm on each page.
        max_new_tokens: where a page is cut.
        threads: torch threads, and as many for OCR.
    """

    model: str | None = option(None, metavar="ID_OR_PATH")
    draft: str | None = option(None, metavar="ID_OR_PATH")
    prompt: str | None = None
    form: str | None = option(None, metavar="NAME")
    arms: tuple[str, ...] = names("arm", ARMS, "plain")
    pages: int = option(2, 1)
    repeats: int = option(1, 1)
    max_new_tokens: int = option(512, 1)
    threads: int = option(1, 1)

    FULL: ClassVar[Mapping[str, Any]] = {"pages": 12}
