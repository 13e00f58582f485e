"""Losses of the recipe: the expert's bins, and the patches that show hand, object and goal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss

from sooner.models.openvla.model import OpenVLAForActionPrediction

from . import words
from .architecture import GRID
from .data import DemonstrationBatch

THINGS = 3
SOFT = 1.5
"""Standard deviation of a label, in bins: neighbouring bins are nearly as right."""
NEAR = 9
"""Bins that reports call near: the paper's tolerance."""


class RobotHints(nn.Module):
    """Linear heads of the auxiliary losses; they are dropped when the checkpoint is written.

    Args:
        width: of the decoder.
        said: numbers of an action, all its steps.
    """

    def __init__(self, width: int, output: int) -> None:
        super().__init__()
        self.where = nn.Linear(width, 3 * THINGS)  # of each patch: who is here, and where in it
        self.action = nn.Linear(width, output)  # of the last prompt token


def locate(
    hints: RobotHints, seen: Tensor, batch: DemonstrationBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Auxiliary loss on the patches `[rows, patches, width]`: which of them shows what.

    Returns:
        The loss, and how often the right patch is named.
    """
    output = hints.where(seen).unflatten(1, (2, GRID * GRID // 2))  # [rows, 2, 32, 9]
    logits, offsets = output[..., :THINGS], output[..., THINGS:].unflatten(-1, (THINGS, 2))
    patches = batch.patches  # [rows, 2, 3]
    loss = cross_entropy(logits.permute(0, 2, 1, 3), patches, ignore_index=-1)
    known = patches >= 0
    at = patches.clamp(min=0)[:, :, None, :, None].expand(-1, -1, -1, -1, 2)
    guess = offsets.gather(2, at)[:, :, 0]  # [rows, 2, 3, 2]
    loss = loss + 4 * smooth_l1_loss(guess[known], batch.offsets[known], beta=0.1)
    right = (logits.argmax(2) == patches)[known].float().mean()
    return loss, {"patch": round(float(right), 3)}


def answer_states(
    model: OpenVLAForActionPrediction, seen: Tensor, ids: Tensor, mask: Tensor, count: int
) -> Tensor:
    """States from which a policy says the last `count` ids of each row, `[rows, count, width]`.

    Args:
        seen: its patches, `[rows, patches, width]`.
        ids: prompt and action tokens, `[rows, length]`, padding in front.
        mask: 1 on real tokens, as `ids`.
    """
    inner = model.model
    embeds = inner.language_model.embed_tokens(ids.clamp(max=words.IMAGE_ID))
    patches = (ids == words.IMAGE_ID)[..., None]
    embeds = embeds.masked_scatter(patches, seen.flatten(0, 1).to(embeds.dtype))
    places = (mask.cumsum(1) - 1).clamp(min=0)
    states = inner.language_model(
        inputs_embeds=embeds[:, :-1], attention_mask=mask[:, :-1],
        position_ids=places[:, :-1], use_cache=False,
    ).last_hidden_state  # fmt: skip
    return states[:, -count:]


def act(
    model: OpenVLAForActionPrediction, hints: RobotHints, seen: Tensor, batch: DemonstrationBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Imitation: softened cross-entropy of the bins, and the action itself regressed from the last
    prompt token, which is useful long before the bins are right.

    Returns:
        The loss, the mean distance of the likeliest bin, and the share within 9 bins.
    """
    states = answer_states(model, seen, batch.ids, batch.mask, batch.bins.shape[1])
    logits = model.lm_head(states).float()
    first = words.TEXT
    targets = words.TEXT + words.ACTIONS - 1 - batch.bins  # ids
    loss = cross_entropy(logits.flatten(0, 1), soft_labels(targets, logits.shape[-1]).flatten(0, 1))
    direct = smooth_l1_loss(hints.action(states[:, 0].float()), batch.actions, beta=0.1)
    best = logits[..., first : first + words.ACTIONS].argmax(-1) + first
    off = (best - targets).abs().float()
    report = {
        "off": round(float(off.mean()), 2),
        "near": round(float((off <= NEAR).float().mean()), 3),
    }
    return loss + direct, report


def soft_labels(ids: Tensor, vocab: int) -> Tensor:
    """`[rows, said]` to distributions `[rows, said, vocab]`: a bell over the neighbouring bins."""
    line = torch.arange(vocab)
    bell = torch.exp(-0.5 * ((line - ids[..., None]) / SOFT) ** 2)
    inside = (line >= words.TEXT) & (line < words.TEXT + words.ACTIONS)
    bell = bell * inside
    return bell / bell.sum(-1, keepdim=True)
