"""The AR model's shape, as a real Cosmos-1 AR config, and how to deepen it while it learns.

Deep and narrow, so that one forward costs nearly the same for 1 token or 64, as it does for
large models on GPUs. Two of Cosmos' own options are set for a box of 9 x 10 x 12 codes: absolute
positions (the walls are at fixed ones), and a small RoPE base (at 500,000 most planes would not
turn once in 12 columns).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig

from sooner.errors import SoonerError
from sooner.models.cosmos_ar.config import CosmosARConfig
from sooner.models.cosmos_ar.model import CosmosARForCausalLM

ROPE_THETA = 30.0
SHARPNESS = 2.0  # first weight of the query norm: attention can tell a neighbour from the start
LOUDNESS = 5.0  # first size of an embedding: positions of size 1 are added at every layer


@dataclass(frozen=True)
class MotionShape:
    """Sizes of the AR model; `latent_shape` and `vocab` are the tokenizer's."""

    layers: int = 24
    width: int = 96
    heads: int = 3
    kv_heads: int = 3
    intermediate: int = 192
    vocab: int = 768
    latent_shape: tuple[int, int, int] = (9, 10, 12)


def build_model(shape: MotionShape) -> CosmosARForCausalLM:
    """A fresh fp32 model; weights come from torch's global generator, as everywhere in HF."""
    config = CosmosARConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.width // shape.heads,
        latent_shape=shape.latent_shape,
        rope_theta=ROPE_THETA,
        apply_abs_pos_emb=True,
        initializer_range=0.03,
    )
    model = CosmosARForCausalLM(config).float()
    nn.init.normal_(model.model.embed_tokens.weight, std=LOUDNESS)
    for layer in awake(model).values():
        nn.init.constant_(layer.self_attn.q_norm.weight, SHARPNESS)
    # The setting of the coupled-decoding paper (appendix F.2).
    model.generation_config = GenerationConfig(do_sample=True, top_p=0.8, top_k=0, temperature=1.0)
    return model


class Sleeper(nn.Module):
    """Placeholder of a layer: returns its input unchanged, at no cost."""

    def forward(self, hidden_states: torch.Tensor, **_: object) -> torch.Tensor:
        return hidden_states


def awake(model: CosmosARForCausalLM) -> dict[int, Any]:
    """The layers that compute, by their slot."""
    slots = enumerate(model.model.layers)
    return {slot: layer for slot, layer in slots if not isinstance(layer, Sleeper)}


def spread(count: int, layers: int) -> list[int]:
    """The slots of `count` awake layers among `layers`: evenly, the first awake."""
    if not 1 <= count <= layers:
        raise SoonerError(f"{count} layers can't be awake of {layers}: give 1 to {layers}")
    return [slot * layers // count for slot in range(count)]


def middle(slots: Iterable[int]) -> int:
    """The slot of the layer halfway through those awake."""
    ordered = sorted(slots)
    return ordered[len(ordered) // 2]


def sleep(model: CosmosARForCausalLM, slots: Iterable[int]) -> None:
    """Put every layer but those at `slots` to sleep, in place."""
    active = set(slots)
    for slot in range(len(model.model.layers)):
        if slot not in active:
            model.model.layers[slot] = Sleeper()


def wake(model: CosmosARForCausalLM, slots: Iterable[int]) -> None:
    """Wake the layers at `slots`, in place, without changing what the model computes.

    A woken layer is a copy of the nearest awake one below it with its two output projections
    (`o_proj`, `down_proj`) at zero: it adds nothing to the residual stream until training moves
    them. Placeholders occupy the slots from the beginning because Cosmos adds its absolute
    positions before every slot; were layers inserted instead, each would add them once more.
    """
    for slot in sorted(slots):
        there = awake(model)
        if slot in there:
            continue
        below = there[max(index for index in there if index < slot)]
        copy: Any = type(below)(model.config, slot).float()
        copy.load_state_dict(below.state_dict())
        nn.init.zeros_(copy.self_attn.o_proj.weight)
        nn.init.zeros_(copy.mlp.down_proj.weight)
        model.model.layers[slot] = copy
