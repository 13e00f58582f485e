"""The AR model's shape, as a real Cosmos-1 AR config.

Deep and narrow, so that one forward costs nearly the same for 1 token or 64, as it does for
large models on GPUs. Two of Cosmos' own options are set for a box of 9 x 10 x 12 codes: absolute
positions (the walls are at fixed ones), and a small RoPE base (at 500,000 most planes would not
turn once in 12 columns).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import GenerationConfig

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
    for layer in model.model.layers:
        nn.init.constant_(layer.self_attn.q_norm.weight, SHARPNESS)
    # The setting of the coupled-decoding paper (appendix F.2).
    model.generation_config = GenerationConfig(do_sample=True, top_p=0.8, top_k=0, temperature=1.0)
    return model
