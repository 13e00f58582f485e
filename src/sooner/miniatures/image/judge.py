"""Training of the classifier on pictures that have been through the codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers.models.janus.modeling_janus import JanusVQVAE

from . import bank, card, classifier, world
from . import codes as coding
from .loop import Schedule, decayed
from .recipe import ClassifierRecipe


class Judge:
    """The part of a run that trains the classifier; see `loop.Part`."""

    def __init__(
        self, config: ClassifierRecipe, codes: JanusVQVAE, cache: Path | None = None
    ) -> None:
        self.config, self.steps, self.codes = config, config.steps, codes
        self.model = classifier.Classifier().train()
        self.modules = {"model": self.model}
        made = bank.encode(codes, config.bank, config.seed, cache, world.ROUGH)
        # uint8 keeps the bank small: [count, 3, side, side].
        self.pixels = (coding.decode(codes, made.codes) * 255).round().byte()
        self.labels = torch.tensor([classifier.labels(one.attributes) for one in made.pictures])
        self.optimizer = torch.optim.AdamW(
            decayed(self.model, 0.05), lr=config.lr, betas=(0.9, 0.98)
        )
        self.schedule = Schedule(config.lr, config.steps)

    def step(self, index: int) -> dict[str, Any]:
        """One step on a batch that follows from `index`."""
        self.schedule.set(self.optimizer, index)
        rng = np.random.default_rng((self.config.seed, index))
        picked = torch.from_numpy(rng.choice(len(self.pixels), self.config.batch, replace=False))
        told = self.labels[picked]  # [batch, heads]
        logits = self.model(self.pixels[picked].float() / 255)
        loss = torch.stack(
            [
                functional.cross_entropy(one, told[:, head], ignore_index=classifier.ABSENT)
                for head, one in enumerate(logits)
            ]
        ).nansum()  # of a batch without any second shape the mean is NaN
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return {"loss": float(loss.detach())}

    def extra(self) -> dict[str, Any]:
        """No state beyond modules and optimizer."""
        return {}

    def restore(self, extra: dict[str, Any]) -> None:
        """Nothing to take back."""

    def finish(self, folder: Path, seconds: float) -> None:
        """Write the classifier and its card."""
        classifier.save(self.model, folder)
        card.write_classifier(folder, self.codes, self.config, seconds)
