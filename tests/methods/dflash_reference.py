"""DFlash's published layout written anew, and what runs draft, for comparison."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from methods.trees import texts_of
from sooner import DFlashModel
from sooner.engine.tree import Tree
from sooner.methods.dflash.method import BlockDrafter, BlockRunner


def literal_logits(
    model: DFlashModel, target: Any, ids: Tensor, weights: Any = None, **pixels: Tensor
) -> Tensor:
    """Logits of the places of a block behind `ids [length]`, `[places, vocab]`."""
    return target.lm_head(literal_states(model, target, ids, weights, **pixels))[1:]


def literal_states(
    model: DFlashModel, target: Any, ids: Tensor, weights: Any = None, **pixels: Tensor
) -> Tensor:
    """Normed states of a block behind `ids [length]`, everything computed anew: `[size, hidden]`.

    Args:
        ids: committed tokens; the last one is the anchor.
        weights: by their published names, `norm.weight` and so on; by default the model's.
        pixels: of a prompt, for the target.
    """
    config, weights = model.config, weights or model.state_dict()

    def norm(x: Tensor, name: str) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt() * weights[name]

    def heads(x: Tensor) -> Tensor:
        return x.view(len(x), -1, config.head_dim)

    size, past, dim = config.block_size, len(ids) - 1, config.head_dim
    frequencies = 10_000.0 ** (-torch.arange(0, dim, 2) / dim)
    angles = torch.arange(past + size)[:, None] * frequencies
    cos, sin = torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()

    def rotate(x: Tensor, first: int) -> Tensor:
        turned = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        places = slice(first, first + len(x))
        return x * cos[places, None] + turned * sin[places, None]

    def convolve(x: Tensor, kernels: Tensor | None) -> Tensor:
        """`out[i, c] = sum over t of kernels[i, t, c] x[i - t, c]`; nothing lies before a block."""
        if kernels is None:
            return x
        out = torch.zeros_like(x)
        for place in range(len(x)):
            for tap in range(min(kernels.shape[1], place + 1)):
                out[place] += kernels[place, tap] * x[place - tap]
        return out

    def convolved(x: Tensor, at: str) -> tuple[Tensor, Tensor | None]:
        """A sublayer's input, and the kernels of its output, `[size, taps, channels]`."""
        if at + "base_kernel" not in weights:
            return x, None
        base = weights[at + "base_kernel"]  # [2, taps, channels]
        change = linear(x, weights[at + "kernel_projection.weight"])
        change = change.view(len(x), 2, base.shape[1], -1)  # a number for each group of channels
        kernels = base + change.repeat_interleave(x.shape[1] // change.shape[-1], -1)
        return convolve(x, kernels[:, 0]), kernels[:, 1]

    forwarded = target.model(ids[None, :-1], output_hidden_states=True, **pixels)
    hidden_states = forwarded.hidden_states
    states = torch.cat([hidden_states[layer][0] for layer in config.layers], -1)
    context = norm(linear(states, weights["fc.weight"]), "hidden_norm.weight")
    block = torch.full((size,), config.mask_token_id)
    block[0] = ids[-1]
    x = weights.get("embed_tokens.weight", target.get_input_embeddings().weight)[block]
    place = torch.arange(past + size)
    for layer in range(config.num_hidden_layers):
        at = f"layers.{layer}."
        entering = norm(x, at + "input_layernorm.weight")
        entering, kernels = convolved(entering, at + "attention_conv.")
        q, k, v = (weights[f"{at}self_attn.{name}_proj.weight"] for name in "qkv")
        whole = torch.cat([context, entering])
        queries = rotate(norm(heads(linear(entering, q)), at + "self_attn.q_norm.weight"), past)
        keys = rotate(norm(heads(linear(whole, k)), at + "self_attn.k_norm.weight"), 0)
        groups = config.num_attention_heads // config.num_key_value_heads
        keys, values = (
            part.repeat_interleave(groups, 1) for part in (keys, heads(linear(whole, v)))
        )
        scores = torch.einsum("qhd,khd->hqk", queries, keys) * dim**-0.5
        query_place = place[past:, None]
        if config.causal[layer]:
            scores = scores.masked_fill(place > query_place, -torch.inf)
        if (window := config.windows[layer]) is not None:
            scores = scores.masked_fill(query_place - place >= window, -torch.inf)
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).flatten(1)
        output = linear(attended, weights[at + "self_attn.o_proj.weight"])
        x = x + convolve(output, kernels)
        y, kernels = convolved(norm(x, at + "post_attention_layernorm.weight"), at + "mlp_conv.")
        gate, up, down = (weights[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        x = x + convolve(linear(silu(linear(y, gate)) * linear(y, up), down), kernels)
    return norm(x, "norm.weight")


def recorded_drafts(
    inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[list[Tensor], Tensor, Tree]]:
    """A list that each draft of a run joins: the rows' texts, the logits of places, the draft."""
    seen: list[tuple[list[Tensor], Tensor, Tree]] = []
    propose, draft = BlockDrafter.propose, BlockRunner.draft
    logits: list[Tensor] = []

    def record(self: BlockRunner, anchors: Tensor) -> tuple[Tensor, Tensor]:
        made = draft(self, anchors)
        logits.append(made[0])
        return made

    def spy(self: BlockDrafter, outcome: Any) -> Tree:
        before = len(logits)
        tree = propose(self, outcome)
        if len(logits) > before:
            seen.append((texts_of(inputs, outcome.rows), logits[-1], tree))
        return tree

    monkeypatch.setattr(BlockRunner, "draft", record)
    monkeypatch.setattr(BlockDrafter, "propose", spy)
    return seen
