"""VisionZip (Yang et al. 2024): the vision tower itself knows which of its tokens matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from sooner.engine.interface import Prompt
from sooner.models import Adapter
from sooner.models.hooks import AttentionCall, AttentionHooks

from .staged_pruners import cluster_means

MERGED = 10 / 64
"""Share of a frame's tokens that are merged ones (MMInference, table 2: 54 dominant, 10 merged)."""


@torch.inference_mode()
def visionzip(adapter: Adapter, inputs: Mapping[str, Any], tokens: int) -> tuple[Prompt, Tensor]:
    """Embed a prompt of LLaVA-OneVision with so many `tokens` of its video, spread over all frames.

    The tower has no CLS token, so a token's score is the attention that it gets from all others.
    Attention and keys are pooled as the features are. Returns the prompt, with consecutive
    positions, and the slots of its tokens in the whole prompt.
    """
    tables: list[Tensor] = []

    def look(module: nn.Module, call: AttentionCall | None, output: Any) -> None:
        assert call is not None  # SigLIP's towers attend by torch's own function
        weights = (call.queries @ call.keys.mT * call.scale).softmax(-1)
        tables.append(torch.cat([weights.mean((1, 2))[..., None], call.keys.mean(1)], 2))

    body: Any = adapter.model.model
    towers = [part for name, part in body.vision_tower.named_modules() if name.endswith("attn")]
    with AttentionHooks() as hooks:
        hooks.around(towers[-1], look)
        prompt = adapter.embed_prompt(inputs)
    table = body.apply_pooling(torch.cat(tables))  # [frames, tokens, 1 + head_dim]
    frames, size = table.shape[:2]
    visual, embeds = prompt.visual[0].nonzero()[:, 0], prompt.embeds.clone()
    stays = torch.ones_like(visual, dtype=torch.bool)  # the newline behind all frames, too
    for number, frame in enumerate(table):
        part = slice(number * size, (number + 1) * size)
        count = tokens * (number + 1) // frames - tokens * number // frames
        chosen, states = zip_frame(frame[:, 0], frame[:, 1:], embeds[0, visual[part]], count)
        embeds[0, visual[part]] = states
        stays[part] = False
        stays[part][chosen] = True
    slots = torch.ones_like(prompt.visual[0]).index_put((visual,), stays).nonzero()[:, 0]
    shorter = adapter.prune_prompt(replace(prompt, embeds=embeds), [stays.nonzero()[:, 0]])
    positions = torch.arange(shorter.width, device=slots.device)[None]
    return replace(shorter, positions=positions, next_position=positions[:, -1] + 1), slots


def zip_frame(scores: Tensor, keys: Tensor, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compress one frame to `count` tokens (VisionZip, sections 3.2 and 3.3).

    Dominant tokens have the highest scores. Evenly spaced others take the mean of the states
    `[tokens, hidden]` of those whose keys are nearest to theirs by cosine. Returns both, `[count]`,
    and all states after that.
    """
    merged = int(count * MERGED)
    order = scores.argsort(descending=True)
    rest = order[count - merged :].sort().values
    places = torch.arange(merged, device=rest.device) * (len(rest) // max(merged, 1))
    if merged:
        directions = normalize(keys[rest], dim=-1)
        owner = (directions @ directions[places].T).argmax(1)
        owner[places] = torch.arange(merged, device=rest.device)  # whatever its twin
        means = cluster_means(states[rest].float(), owner, merged).to(states.dtype)
        states = states.index_put((rest[places],), means)
    return torch.cat([order[: count - merged], rest[places]]), states
