"""Training of the text-to-image decoder, on codes encoded once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import JanusForConditionalGeneration
from transformers.models.janus.modeling_janus import JanusVQVAE

from . import architecture, bank, build, card, hints, words, world
from .loop import Schedule, decayed
from .recipe import TargetRecipe


class Captions:
    """Captions as the processor writes them: BOS, words, BOI, padded on the left."""

    def __init__(self) -> None:
        self.ids = words.ids()

    def rows(self, pictures: list[world.Picture], blank: Iterable[bool]) -> torch.Tensor:
        """Prompt ids `[rows, longest]`; rows with `blank` say nothing, as HF's guidance does.

        There every token but BOS and BOI becomes a pad, and the attention mask stays as it was.
        """
        rows = [[self.ids[word] for word in picture.caption.split()] for picture in pictures]
        bos, boi, pad = (self.ids[mark] for mark in (words.BOS, words.BOI, words.PAD))
        rows = [[pad] * len(row) if drop else row for row, drop in zip(rows, blank, strict=True)]
        longest = max(map(len, rows))
        return torch.tensor([[pad] * (longest - len(row)) + [bos, *row, boi] for row in rows])

    def mask(self, prompt: torch.Tensor) -> torch.Tensor:
        """Attention mask of prompts, `[rows, longest]`: all from BOS on."""
        return (prompt == self.ids[words.BOS]).long().cumsum(1)


def predict(
    model: JanusForConditionalGeneration,
    prompt: torch.Tensor,
    mask: torch.Tensor,
    codes: torch.Tensor,
) -> torch.Tensor:
    """Logits of all codes of pictures, teacher-forced: `[rows, tokens, entries]`.

    Arguments are those of `states`.
    """
    _, hidden = states(model, prompt, mask, codes)
    return model.model.generation_head(hidden[:, prompt.shape[1] - 1 :])


def states(
    model: JanusForConditionalGeneration,
    prompt: torch.Tensor,
    mask: torch.Tensor,
    codes: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """States along captions and their pictures.

    Args:
        model: the decoder.
        prompt: ids `[rows, length]`.
        mask: its attention mask.
        codes: `[rows, tokens]`; the last is predicted and never read. Without a picture,
            `[rows, 0]`.

    Returns:
        Output of the layer that the hint reads, and the last one, normalised; both
        `[rows, length + tokens - 1, width]`.
    """
    said = model.get_input_embeddings()(prompt)  # [rows, length, width]
    drawn = model.prepare_embeddings_for_image_generation(codes[:, :-1])
    attended = torch.cat([mask, torch.ones_like(codes[:, :-1])], dim=1)
    text, read = model.model.language_model, []
    # A hook of our own: HF's `output_hidden_states` leaves out layers that `grow` put in.
    layer = text.layers[len(text.layers) // 2]
    handle = layer.register_forward_hook(lambda _module, _inputs, output: read.append(output))
    try:
        last = text(
            inputs_embeds=torch.cat([said, drawn.to(said.dtype)], dim=1),
            attention_mask=attended,
            position_ids=(attended.cumsum(1) - 1).clamp_min(0),
            use_cache=False,
        ).last_hidden_state
    finally:
        handle.remove()
    return read[0], last


class Target:
    """The part of a run that trains the decoder; see `loop.Part`."""

    def __init__(
        self, config: TargetRecipe, codes: JanusVQVAE, judge: Path, cache: Path | None = None
    ) -> None:
        self.config, self.judge = config, judge
        self.steps = sum(config.steps)
        shape = dataclasses.replace(config.shape, layers=config.shallow)
        self.model = architecture.build_model(shape, codes).train()
        # 1.5 times as fast here as SDPA, whose CPU backward is slow; checkpoints don't record it.
        self.model.set_attn_implementation("eager")
        for unused in (self.model.model.vqmodel, self.model.model.vision_model):
            unused.requires_grad_(False)
        self.head = hints.Head(config.shape.width)
        self.modules = {"model": self.model, "head": self.head}
        self.captions = Captions()
        self.family = hints.families(codes, config.seed)
        self.bank = bank.encode(codes, config.bank, config.seed, cache)
        self.optimizer = self._fresh_optimizer(0)

    def step(self, index: int) -> dict[str, Any]:
        """One step on a batch that follows from `index`."""
        shallow, _ = self.config.steps
        if index == shallow:
            architecture.grow(self.model, self.config.shape.layers)
            self.optimizer = self._fresh_optimizer(1)
        stage = int(index >= shallow)
        schedule = Schedule(self.config.lr[stage], self.config.steps[stage])
        schedule.set(self.optimizer, index - stage * shallow)
        loss, report = self._loss(np.random.default_rng((self.config.seed, index)))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return report

    def _loss(self, rng: np.random.Generator) -> tuple[torch.Tensor, dict[str, float]]:
        """What a step lowers, and its parts."""
        config = self.config
        prompt, labels, picked = self._draw(rng, config.batch)
        codes = self.bank.codes[picked]  # [batch, tokens]
        more, more_labels, _ = self._draw(rng, config.captions)
        with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
            middle, last = states(self.model, prompt, self.captions.mask(prompt), codes)
            boi = prompt.shape[1] - 1
            logits = self.model.model.generation_head(last[:, boi:])
            read, _ = states(
                self.model, more, self.captions.mask(more), codes[:0].new_empty(config.captions, 0)
            )
        logs = logits.float().log_softmax(-1).flatten(0, 1)  # [batch * tokens, entries]
        code = functional.nll_loss(logs, codes.flatten())
        family = hints.family_loss(logs, codes.flatten(), self.family)
        named = self.head(middle[:, boi:], labels)
        told = self.head(read[:, -1:], more_labels)
        loss = code + config.family * family + config.hint * (named + told)
        report = {"loss": code, "family": family, "named": named, "told": told}
        return loss, {name: float(value.detach()) for name, value in report.items()}

    def _draw(
        self, rng: np.random.Generator, count: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Prompts, labels and places in the bank of some pictures, a share of them blank."""
        picked = rng.choice(self.config.bank, count, replace=False)
        blank = (rng.random(count) < self.config.dropped).tolist()
        pictures = [self.bank.pictures[row] for row in picked]
        labels = hints.label(pictures, blank)
        return self.captions.rows(pictures, blank), labels, torch.from_numpy(picked)

    def extra(self) -> dict[str, Any]:
        """State beyond modules and optimizer: the depth reached."""
        return {"layers": len(self.model.model.language_model.layers)}

    def restore(self, extra: dict[str, Any]) -> None:
        """Grow to the depth reached, so that the weights fit."""
        if extra["layers"] > self.config.shallow:
            architecture.grow(self.model, extra["layers"])
            self.optimizer = self._fresh_optimizer(1)

    def finish(self, folder: Path, seconds: float) -> None:
        """Write the checkpoint, and its card as the classifier sees it."""
        build.save(self.model, folder)
        card.write_target(folder, self.judge, self.config, seconds)

    def _fresh_optimizer(self, stage: int) -> torch.optim.Optimizer:
        groups = decayed(self.model, 0.02) + decayed(self.head, 0.0)
        return torch.optim.AdamW(groups, lr=self.config.lr[stage], betas=(0.9, 0.98))
