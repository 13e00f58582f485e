"""What `sooner bench parse` measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

ARMS = (
    *("plain", "hf", "hf-prompt-lookup", "prompt-lookup", "speculative"),
    *("hsd-page", "hsd-page-relaxed", "hsd", "hsd-relaxed"),
)
"""`plain` is what all others are held against; `-page` verifies on the page alone (stage 2),
without it regions come first (stage 1); `-relaxed` has the paper's tolerance."""

PARTS = ("arms", "document", "exactness", "clients")
RELAXED = 0.75
"""Tolerance of the relaxed arms, the paper's tau."""


@dataclass(frozen=True)
class ParseBenchSettings:
    """What is measured.

    Attributes:
        model: checkpoint folder or hub id; `None` is the document miniature, with its draft.
        draft: of the `speculative` arm; `None` is the miniature's own, if that is the model.
        prompt, form: what the model is asked and how it answers; `None` is its family's way.
        arms: among `ARMS`.
        parts: among `PARTS`; `exactness` only counts with `exact_pages`, `clients` with `clients`.
        pages: of the arms, one more being their warm-up.
        repeats: timed runs of each arm on each page.
        document_pages: of the PDF; half as many would hide less of the drafter.
        exact_pages: held-out pages whose ids are compared; 0 for none beyond those of the arms.
        clients: pages under way at once, each number for itself; none by default.
        client_pages: that are parsed with each of them.
        batch: rows of plain decoding where nobody times it.
        max_new_tokens: where a page is cut.
        device, dtype, threads, seed: as everywhere. OCR gets as many threads as the model.
    """

    model: str | None = None
    draft: str | None = None
    prompt: str | None = None
    form: str | None = None
    arms: tuple[str, ...] = ARMS
    parts: tuple[str, ...] = PARTS
    pages: int = 2
    repeats: int = 1
    document_pages: int = 3
    exact_pages: int = 0
    clients: tuple[int, ...] = ()
    client_pages: int = 32
    batch: int = 16
    max_new_tokens: int = 512
    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1
    seed: int = 20_261_121
