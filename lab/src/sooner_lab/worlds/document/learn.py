"""Reading as a lesson of the common trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..training import depth_of, first_model, write_depth
from . import architecture, bank, build, card, data, evaluate, losses, page_loss
from .recipe import DocumentRecipe, DocumentStage

CHECK_SEED = 10_007  # held-out pages for progress reports; training seeds are small numbers
CHECK_PAGES = 8
FIXED = ("shape", "seed", "start")
"""Fields of the recipe in which a resumed run must agree."""


class ReadingLesson:
    """Pages, the reader, and the hints that are dropped in the end.

    Args:
        out: folder that the recipe's `start` is relative to.
        config: the recipe.

    Raises:
        SoonerError: there is no fitting checkpoint to start from.
    """

    def __init__(self, out: Path, config: DocumentRecipe) -> None:
        self.config, self.start = config, out / config.start
        self.writer = data.PageRowWriter()
        with torch.random.fork_rng():  # HF draws first weights from the global generator
            torch.manual_seed(config.seed)
            start = self.start.resolve() if config.start else None
            self.reader = first_model(config, start, architecture.build_model, evaluate.load)
            self.hints = losses.DocumentHints(config.shape.width)
        self.model: nn.Module = nn.ModuleDict({"reader": self.reader, "hints": self.hints})
        self.stage: DocumentStage = config.stages[0]
        self.banks: dict[tuple[int, int], bank.PageBank] = {}

    def enter(self, stage: DocumentStage, index: int) -> None:
        self.stage, self.banks = stage, {}
        if stage.layers:
            architecture.grow(self.reader, stage.layers)
        self.model.requires_grad_(True)
        if stage.kind == "language":
            self.reader.model.visual.requires_grad_(False)
            for size in sorted(set(stage.sizes)):
                seed = (self.config.seed, index, *size)
                self.banks[size] = bank.encode(self.reader, self.writer, stage.pages, size, seed)

    def shape_like(self, state: dict[str, Tensor]) -> None:
        architecture.grow(self.reader, depth_of(state, "reader.model.language_model.layers."))

    def loss(self, stage: DocumentStage, rng: np.random.Generator) -> tuple[Tensor, dict[str, Any]]:
        rows, columns = stage.sizes[rng.integers(len(stage.sizes))]
        count = max(stage.tokens // (rows * columns), 1)
        named: Tensor | float = 0.0
        report: dict[str, Any] = {"rows": rows}
        if stage.kind == "language":
            shown, answers = self.banks[rows, columns].draw(rng, count)
        else:
            pages = data.sample_pages(rng, count, rows, columns)
            sheets = self.writer.sheets(pages, rng)
            seen, named, told = self._name(sheets)
            report |= told
            if stage.kind == "vision":
                return named, report
            shown = page_loss.Shown(seen, sheets.words, sheets.previous)
            answers = [self.writer.answer(page) for page in pages]
        text = self.writer.rows(rng, answers, rows, columns)
        loss, told = page_loss.read(self.reader, self.hints, text, shown, stage.guide, stage.bf16)
        return loss + 0.3 * named, {**report, **told}

    def _name(self, sheets: data.Sheets) -> tuple[losses.Seen, Tensor, dict[str, Any]]:
        """What the tower sees, and how well its tokens name words; in full precision."""
        with torch.autocast("cpu", enabled=False):
            seen = losses.see(self.reader, sheets.patches, sheets.grid)
            return seen, *losses.name(self.reader, self.hints, seen, sheets)

    def after_step(self, rng: np.random.Generator) -> None:
        """Does nothing."""

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

    def save(self, folder: Path, steps: int, seconds: float) -> None:
        build.save(self.reader, folder)
        write_depth(folder, self.reader, self.config.shape.layers)
        card.write(folder, self.config, seconds, self.start)
