"""How the classifier learns: attributes of pictures that have been through the codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..lessons import Lesson
from ..training import need
from . import bank, build, card, classifier, codes, world
from .recipe import ImageRecipe, ImageStage


class ClassifierLesson(Lesson):
    """See `lessons.Lesson`."""

    def __init__(self, out: Path, config: ImageRecipe) -> None:
        self.out, self.config = out, config
        self.codes = build.load_codes(need(out, "codes"))
        self.judge = classifier.Classifier().train()
        self.model: nn.Module = self.judge
        self.pixels = torch.empty(0, dtype=torch.uint8)  # [bank, 3, side, side]
        self.labels = torch.empty(0)  # [bank, heads]

    def enter(self, stage: ImageStage, index: int) -> None:
        if len(self.pixels):
            return
        config = self.config
        cache = self.out / "bank.pt"
        made = bank.encode(self.codes, config.bank, config.seed, cache, world.ROUGH)
        self.pixels = (codes.decode(self.codes, made.codes) * 255).round().byte()
        self.labels = torch.tensor(
            [classifier.labels(picture.attributes) for picture in made.pictures]
        )

    def loss(
        self, stage: ImageStage, rng: np.random.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        picked = torch.from_numpy(rng.integers(len(self.pixels), size=stage.rows))
        targets = self.labels[picked]  # [rows, heads]
        logits = self.judge(self.pixels[picked].float() / 255)
        losses = [
            functional.cross_entropy(head_logits, targets[:, head], ignore_index=classifier.ABSENT)
            for head, head_logits in enumerate(logits)
        ]
        guesses = torch.stack(
            [head_logits.argmax(1) for head_logits in logits], dim=1
        )  # [rows, heads]
        right = (guesses == targets)[targets != classifier.ABSENT].float().mean()
        # Of rows without any second shape the mean is NaN.
        return torch.stack(losses).nansum(), {"right": float(right)}

    def check(self) -> dict[str, float]:
        return card.classifier_figures(self.judge, self.codes, 64)["accuracy_rebuilt"]

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        classifier.save(self.judge, folder)
        loaded = classifier.load(folder)
        return loaded, card.classifier_figures(loaded, self.codes, card.JUDGED)
