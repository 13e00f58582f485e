"""VisionZip (Yang et al. 2024): the vision tower itself knows which of its tokens matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from sooner.engine.interface import Prompt
from sooner.models import Adapter
from sooner.models.hooks import AttentionCall, AttentionHooks

from .staged_pruners import cluster_means

CONTEXTUAL = 10 / 64
"""Share of a frame's tokens that are merged ones (MMInference, table 2: 54 dominant, 10 merged)."""


@torch.inference_mode()
def visionzip(adapter: Adapter, inputs: Mapping[str, Any], tokens: int) -> tuple[Prompt, Tensor]:
    """Embed one prompt with a video of LLaVA-OneVision with fewer visual tokens.

    The tower has no CLS token, so a token's score is the attention that it gets from all others.
    Attention and keys are pooled as the features are. Tokens are spread evenly over frames.

    Args:
        inputs: of the model's processor.
        tokens: of all frames together.

    Returns:
        The prompt, with consecutive positions, and the slots of its tokens in the whole prompt.
    """
    tables: list[Tensor] = []

    def look(module: nn.Module, call: AttentionCall, output: Any) -> None:
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
    kept = [torch.arange(frames * size, len(visual), device=visual.device)]  # the newline
    ends = pairwise([tokens * number // frames for number in range(frames + 1)])
    for number, (frame, (start, end)) in enumerate(zip(table, ends, strict=True)):
        members = torch.arange(number * size, (number + 1) * size, device=visual.device)
        states = embeds[0, visual[members]]
        chosen, merged = zip_frame(frame[:, 0], frame[:, 1:], states, min(end - start, size))
        embeds[0, visual[members]] = merged
        kept.append(members[chosen])
    some = torch.cat(kept).sort().values
    slots = ~prompt.visual[0]
    slots[visual[some]] = True
    shorter = adapter.prune_prompt(replace(prompt, embeds=embeds), [some])
    positions = torch.arange(shorter.width, device=slots.device)[None]
    return replace(
        shorter, positions=positions, next_position=positions[:, -1] + 1
    ), slots.nonzero()[:, 0]


def zip_frame(scores: Tensor, keys: Tensor, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compress one frame to `count` tokens (VisionZip, sections 3.2 and 3.3).

    Args:
        scores: attention that each token gets, `[tokens]`.
        keys: tower keys, `[tokens, head_dim]`.
        states: what is merged, `[tokens, hidden]`.

    Returns:
        The tokens that stay `[count]`: dominant ones, then evenly spaced others, which have taken
        the mean of those whose keys are nearest to theirs by cosine; and all states after that.
    """
    merged = int(count * CONTEXTUAL)
    order = scores.argsort(descending=True)
    rest = order[count - merged :].sort().values
    places = torch.arange(merged, device=rest.device) * (len(rest) // max(merged, 1))
    centres, states = rest[places], states.clone()
    if merged:
        directions = normalize(keys, dim=-1)
        owner = (directions[rest] @ directions[centres].T).argmax(1)
        owner[places] = torch.arange(merged, device=rest.device)  # whatever its twin
        states[centres] = cluster_means(states[rest].float(), owner, merged).to(states.dtype)
    return torch.cat([order[: count - merged], centres]), states
