"""Loss of the vision tower: classify the word that begins in each visual token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Qwen3VLForConditionalGeneration

from .data import MARKS, Sheets
from .page import LABELS

BLANK = 0.2
"""Weight of visual tokens in which no word begins: most of a page."""
LOUD = 20.0
"""Factor on the tower's features when words are classified. Without it their norm grows to 40 times
that of the decoder's embeddings, and what attention adds to them has no effect for a thousand
steps.
"""


class DocumentHints(nn.Module):
    """Linear heads of the auxiliary losses; they are dropped when the checkpoint is written."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kind = nn.Linear(width, len(MARKS) + 1 + len(LABELS))
        self.before = nn.Linear(width, width)
        self.before_that = nn.Linear(width, width)


@dataclass(frozen=True)
class Seen:
    """Outputs of the tower: `features` and DeepStack's `deep`, [pages, cells, width]."""

    features: Tensor
    deep: Tensor


def see(model: Qwen3VLForConditionalGeneration, patches: Tensor, grid: Tensor) -> Seen:
    """Run the tower on grey pages of one size; patches as in `data.Sheets`."""
    with _grey(model.model.visual.patch_embed):
        seen = model.model.visual(patches, grid_thw=grid, return_dict=True)
    pages = len(grid)
    return Seen(
        seen.pooler_output.unflatten(0, (pages, -1)),
        seen.deepstack_features[0].unflatten(0, (pages, -1)),
    )


@contextmanager
def _grey(embed: Any) -> Iterator[None]:
    """Embed grey patches: channels and frames are equal, so the kernel is summed over them.

    The convolution's backward takes longer than all the rest of the tower's.
    """
    kernel = embed.proj.weight.sum((1, 2)).flatten(1)  # [width, PATCH * PATCH]
    embed.forward = lambda patches: patches @ kernel.T + embed.proj.bias
    try:
        yield
    finally:
        del embed.forward


def name(
    model: Qwen3VLForConditionalGeneration, hints: DocumentHints, seen: Seen, sheets: Sheets
) -> tuple[Tensor, dict[str, Any]]:
    """The auxiliary loss on visual tokens: which word begins there, and what it belongs to.

    Words are classified by the decoder's own embeddings, so that a visual token's feature is near
    its word's embedding and the decoder only has to copy it.
    """
    table = model.model.language_model.embed_tokens.weight  # [vocab, width]
    logits = LOUD * seen.features @ table.T  # [pages, cells, vocab]
    truth, has_word = sheets.words, sheets.labels > 0
    weight = torch.where(has_word, 1.0, BLANK)
    each = cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none")
    loss = (each * weight.flatten()).sum() / weight.sum()
    marks, labels = hints.kind(LOUD * (seen.deep + seen.features)).split(
        [len(MARKS), 1 + len(LABELS)], -1
    )
    loss = loss + cross_entropy(marks[has_word], sheets.marks[has_word])
    loss = loss + cross_entropy(labels[has_word], sheets.labels[has_word])
    best = logits.argmax(-1)
    dotted = has_word & (sheets.marks > 0)
    report = {
        "word": share((best == truth)[has_word]),
        "blank": share((best == truth)[~has_word]),
        "mark": share((marks.argmax(-1) == sheets.marks)[dotted]),
        "label": share((labels.argmax(-1) == sheets.labels)[has_word]),
    }
    return loss, report


def share(right: Tensor) -> float:
    """Share of a mask that is true, for reports."""
    return round(float(right.float().mean()), 4)
