"""How the text-to-image decoder learns: next codes, and auxiliary losses on shapes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .. import cards
from ..lessons import Lesson
from ..training import first_depth, need, write_depth
from . import architecture, bank, build, card, classifier, evaluate, hints, target
from .recipe import ImageRecipe, ImageStage


class ImageTargetLesson(Lesson):
    """See `lessons.Lesson`."""

    decoder = "target"

    def __init__(self, out: Path, config: ImageRecipe) -> None:
        self.out, self.config = out, config
        self.codes = build.load_codes(need(out, "codes"))
        self.judge = need(out, "classifier")
        shape = dataclasses.replace(config.shape, layers=first_depth(config, config.shape.layers))
        self.target = architecture.build_model(shape, self.codes).train()
        # 1.5 times as fast here as SDPA, whose CPU backward is slow; checkpoints don't record it.
        self.target.set_attn_implementation("eager")
        for unused in (self.target.model.vqmodel, self.target.model.vision_model):
            unused.requires_grad_(False)
        self.head = hints.AttributeHeads(shape.width)
        self.model: nn.Module = nn.ModuleDict({"target": self.target, "head": self.head})
        self.captions = target.PaddedCaptions()
        self.bank: bank.Bank | None = None
        self.family = torch.empty(0)  # [entries] colour family of each code

    def enter(self, stage: ImageStage, index: int) -> None:
        super().enter(stage, index)
        if self.bank is None:
            config = self.config
            self.bank = bank.encode(self.codes, config.bank, config.seed, self.out / "bank.pt")
            self.family = hints.families(self.codes, config.seed)

    def loss(
        self, stage: ImageStage, rng: np.random.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        assert self.bank is not None
        prompt, labels, picked = self._draw(rng, stage.rows)
        codes = self.bank.codes[picked]  # [rows, tokens]
        middle, last = target.states(self.target, prompt, self.captions.mask(prompt), codes)
        boi = prompt.shape[1] - 1
        logits = self.target.model.generation_head(last[:, boi:])
        logs = logits.float().log_softmax(-1).flatten(0, 1)  # [rows * tokens, entries]
        nats = functional.nll_loss(logs, codes.flatten())
        family = hints.family_loss(logs, codes.flatten(), self.family)
        named = self.head(middle[:, boi:], labels)
        caption_loss = self._read_captions(rng)
        loss = nats + self.config.family * family + self.config.hint * (named + caption_loss)
        report = {"nats": nats, "family": family, "named": named, "told": caption_loss}
        return loss, {name: float(value.detach()) for name, value in report.items()}

    def _read_captions(self, rng: np.random.Generator) -> torch.Tensor:
        """The hint's loss on captions without a picture."""
        prompt, labels, _ = self._draw(rng, self.config.captions)
        nothing = torch.empty(len(prompt), 0, dtype=torch.long)
        read, _ = target.states(self.target, prompt, self.captions.mask(prompt), nothing)
        return self.head(read[:, -1:], labels)

    def _draw(
        self, rng: np.random.Generator, rows: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Prompts, labels and places in the bank of some pictures, a share of them blank."""
        assert self.bank is not None
        picked = rng.integers(len(self.bank.pictures), size=rows)
        blank = (rng.random(rows) < self.config.dropped).tolist()
        pictures = [self.bank.pictures[row] for row in picked]
        labels = hints.label(pictures, blank)
        return self.captions.rows(pictures, blank), labels, torch.from_numpy(picked)

    def check(self) -> dict[str, float]:
        made = bank.encode(self.codes, 16, card.TEST_SEED)
        return evaluate.openness(self.target, made.pictures, made.codes, architecture.GUIDANCE)

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        build.save(self.target, folder)
        write_depth(folder, self.target, self.config.shape.layers)
        loaded, processor = build.load(folder)
        figures = card.target_figures(loaded, processor, classifier.load(self.judge))
        return loaded, figures | cards.depth(loaded, folder)
