"""Vision features of pages, computed once by the frozen tower, to train the decoder on.

A decoder step then pays for neither drawing nor vision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import Qwen3VLForConditionalGeneration

from . import data, losses, page_loss

CHUNK = 8


@dataclass(frozen=True)
class PageBank:
    """Pages of one size.

    Attributes:
        rows, columns: visual tokens down and across.
        features, deep: outputs of the tower, half precision, `[pages, cells, width]`.
        words, previous: of `data.Sheets`, `[pages, cells]`.
        answers: one a page.
    """

    rows: int
    columns: int
    features: torch.Tensor
    deep: torch.Tensor
    words: torch.Tensor
    previous: torch.Tensor
    answers: list[data.PageAnswer]

    def draw(
        self, rng: np.random.Generator, count: int
    ) -> tuple[page_loss.PageInputs, list[data.PageAnswer]]:
        """`count` pages as they are seen, and their answers."""
        picked = rng.integers(len(self.answers), size=count)
        at = torch.from_numpy(picked)
        seen = losses.Seen(self.features[at].float(), self.deep[at].float())
        inputs = page_loss.PageInputs(seen, self.words[at], self.previous[at])
        return inputs, [self.answers[page] for page in picked]


def encode(
    model: Qwen3VLForConditionalGeneration,
    writer: data.PageRowWriter,
    pages: int,
    size: tuple[int, int],
    seed: Sequence[int],
) -> PageBank:
    """Draw `pages` pages of `size` (rows, columns) from `seed` and encode them."""
    rng = np.random.default_rng(seed)
    features, deep, word_ids, previous, answers = [], [], [], [], []
    with torch.no_grad():
        for begin in range(0, pages, CHUNK):
            some = data.sample_pages(rng, min(CHUNK, pages - begin), *size)
            sheets = writer.sheets(some, rng)
            seen = losses.see(model, sheets.patches, sheets.grid)
            features.append(seen.features.half())
            deep.append(seen.deep.half())
            word_ids.append(sheets.words)
            previous.append(sheets.previous)
            answers += [writer.answer(page) for page in some]
    return PageBank(
        *size,
        torch.cat(features),
        torch.cat(deep),
        torch.cat(word_ids),
        torch.cat(previous),
        answers,
    )
