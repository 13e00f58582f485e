"""Rows that a target prunes: a draft is trained on the visual tokens that it will get.

ParallelVLM ranks a prompt's visual tokens by the target's states while the target prefills. A draft
that was trained on randomly pruned prompts alone has a lower acceptance on these.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from sooner.errors import SoonerError
from sooner.methods.parallel.method import target_depth
from sooner.methods.pruning import Criterion, rank

from . import architecture, bank, data, evaluate, losses

CRITERION: Criterion = "uv-prune-by-frame"
SHORT = 20 * architecture.POOLED**2 + 1
"""Visual tokens of a row that nothing is taken from: ten scenes of two frames need them all."""


class Ranker:
    """A target's lower layers, and the scenes of a training bank as its own tower sees them.

    Args:
        folder: the target's checkpoint.

    Raises:
        SoonerError: there is none.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "config.json").is_file():
            raise SoonerError(f"no checkpoint at '{folder}' to rank tokens with; train that first")
        self.model, _ = evaluate.load(folder)
        self.model.requires_grad_(False)
        decoder = self.model.model.language_model
        decoder.layers = decoder.layers[: target_depth(len(decoder.layers))]
        # What comes out then is what a hook behind the last of these layers sees.
        decoder.norm = nn.Identity()
        self.bank: bank.SceneBank | None = None

    def enter(self, writer: data.CaptionRowWriter, size: int, seed: tuple[int, ...]) -> None:
        """Encode the scenes that `bank.encode` draws for the draft from the same seed."""
        self.bank = bank.encode(self.model, writer, size, seed)

    @torch.no_grad()
    def places_to_keep(
        self, batch: data.CaptionRows, features: Tensor, first: int, ratio: float
    ) -> Tensor:
        """Which places of each row are left when the target prunes it: [rows, kept].

        Args:
            batch: rows that share their prompt's length.
            features: as this model's tower sees the clips, [rows, frames * tokens, width].
            first: the place of a row's first visual token.
            ratio: share of the visual tokens that is pruned.
        """
        answer = int((batch.labels[0] != data.IGNORE).nonzero()[0])
        embeds = losses.embed(self.model, batch.ids[:, :answer], features, first)
        states = self.model.model.language_model(
            inputs_embeds=embeds, use_cache=False
        ).last_hidden_state
        visual = torch.zeros(answer, dtype=torch.bool)
        visual[first : first + features.shape[1] + 1] = True  # the newline's token is one too
        frames = torch.full((answer,), -1)
        numbers = torch.arange(batch.frames_per_row).repeat_interleave(architecture.POOLED**2)
        frames[first : first + len(numbers)] = numbers
        places = torch.arange(batch.ids.shape[1])
        before, after = places[:first], places[first + features.shape[1] + 1 :]
        rows = []
        for pair in zip(embeds, states, strict=True):
            chosen = rank(CRITERION, ratio, *pair, visual, frames)
            rows.append(torch.cat([before, first + chosen, after]))
        return torch.stack(rows)
