"""Reading as a lesson of the common trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import cards
from ..lessons import Lesson, trainer
from ..training import first_model, start_of, write_depth
from . import architecture, bank, build, data, evaluate, losses, page_loss
from .recipe import RECIPES, DocumentRecipe, DocumentStage

CHECK_SEED = 10_007  # held-out pages for progress reports; training seeds are small numbers
CHECK_PAGES = 8
TEST_SEED = 20_011
SIZES = {"line": (1, 16), "block": (5, 16), "half page": (10, 16), "page": (20, 16)}
"""Rows and columns of the pages on which the card's accuracy is measured."""


class ReadingLesson(Lesson):
    """Pages, the reader, and the hints that are dropped in the end.

    Args:
        out: folder that the recipe's `start` is relative to.
        config: the recipe.

    Raises:
        SoonerError: there is no fitting checkpoint to start from.
    """

    decoder = "reader"

    def __init__(self, out: Path, config: DocumentRecipe) -> None:
        self.config = config
        self.writer = data.PageRowWriter()
        self.start = start_of(out, config)
        self.reader = first_model(config, self.start, architecture.build_model, evaluate.load)
        self.hints = losses.DocumentHints(config.shape.width)
        self.model: nn.Module = nn.ModuleDict({"reader": self.reader, "hints": self.hints})
        self.stage: DocumentStage = config.stages[0]
        self.banks: dict[tuple[int, int], bank.PageBank] = {}

    def enter(self, stage: DocumentStage, index: int) -> None:
        super().enter(stage, index)
        self.stage, self.banks = stage, {}
        self.model.requires_grad_(True)
        if stage.kind == "language":
            self.reader.model.visual.requires_grad_(False)
            for size in sorted(set(stage.sizes)):
                seed = (self.config.seed, index, *size)
                self.banks[size] = bank.encode(self.reader, self.writer, stage.pages, size, seed)

    def loss(self, stage: DocumentStage, rng: np.random.Generator) -> tuple[Tensor, dict[str, Any]]:
        rows, columns = stage.sizes[rng.integers(len(stage.sizes))]
        count = max(stage.rows // (rows * columns), 1)
        named: Tensor | float = 0.0
        report: dict[str, Any] = {"rows": rows}
        if stage.kind == "language":
            inputs, answers = self.banks[rows, columns].draw(rng, count)
        else:
            pages = data.sample_pages(rng, count, rows, columns)
            sheets = self.writer.sheets(pages, rng)
            seen, named, figures = self._name(sheets)
            report |= figures
            if stage.kind == "vision":
                return named, report
            inputs = page_loss.PageInputs(seen, sheets.words, sheets.previous)
            answers = [self.writer.answer(page) for page in pages]
        text = self.writer.rows(rng, answers, rows, columns)
        loss, figures = page_loss.read(
            self.reader, self.hints, text, inputs, stage.guide, stage.bf16
        )
        return loss + 0.3 * named, {**report, **figures}

    def _name(self, sheets: data.Sheets) -> tuple[losses.Seen, Tensor, dict[str, Any]]:
        """What the tower sees, and how well its tokens name words; in full precision."""
        with torch.autocast("cpu", enabled=False):
            seen = losses.see(self.reader, sheets.patches, sheets.grid)
            return seen, *losses.name(self.reader, self.hints, seen, sheets)

    @torch.no_grad()
    def check(self) -> dict[str, float]:
        """Held-out accuracy: words that are read, or, for "vision", words that are named."""
        rows, columns = max(self.stage.sizes)
        if self.stage.kind != "vision":
            processor = build.build_processor()
            return evaluate.measure(
                self.reader, processor, CHECK_SEED, CHECK_PAGES, (rows, columns)
            )
        rng = np.random.default_rng(CHECK_SEED)
        pages = data.sample_pages(rng, 4 * CHECK_PAGES, rows, columns)
        return self._name(self.writer.sheets(pages, rng))[2]

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        """Held-out word accuracy by size of the page is on the card."""
        build.save(self.reader, folder)
        write_depth(folder, self.reader, self.config.shape.layers)
        model, processor = evaluate.load(folder)
        pages = self.config.card_pages
        accuracy: dict[str, Any] = {
            name: evaluate.measure(model, processor, TEST_SEED, pages, size)
            for name, size in SIZES.items()
        }
        accuracy = {"pages each": pages, **accuracy}
        return model, {**cards.depth(model, folder), "accuracy": accuracy}


train = trainer(dict.fromkeys(RECIPES, ReadingLesson))
