"""Cosmos-1.0's autoregressive video model: layers of Qwen3 whose positions lie in a box.

What differs from Qwen3: RoPE over frame, row and column and, where the config asks for it, absolute
sinusoids added to the input of every layer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3ForCausalLM,
    Qwen3RMSNorm,
)

from ...engine.interface import CACHE, CACHE_NAMES, takes_either_name
from ...errors import SoonerError
from .config import CosmosARConfig

ABSOLUTE_THETA = 10_000.0


def coordinates(positions: Tensor, latent_shape: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """Returns frame, row and column of raster indices, each in the shape of `positions`.

    Indices behind the clip continue in further frames.
    """
    _, height, width = latent_shape
    inside = positions % (height * width)
    return positions // (height * width), inside // width, inside % width


def split(channels: int) -> tuple[int, int, int]:
    """Returns channels for frame, height and width; the last two are even thirds."""
    spatial = channels // 6 * 2
    return channels - 2 * spatial, spatial, spatial


def rotation(config: CosmosARConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Returns cosines and sines for `positions [rows, entries]`.

    Returns:
        Two tensors `[rows, entries, head_dim]`, fp32.
    """
    assert config.head_dim is not None
    frames, height, _ = config.original_latent_shape  # YaRN takes the height for the width too
    parts = []
    for at, size, original in zip(
        coordinates(positions, config.latent_shape),
        split(config.head_dim),
        (frames, height, height),
        strict=True,
    ):
        turns = _stretched(config, _frequencies(size, config.rope_theta, at), original)
        parts.append(at[..., None] * turns)
    angles = torch.cat(parts, -1)  # [rows, entries, head_dim / 2]
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def absolute(config: CosmosARConfig, positions: Tensor) -> Tensor:
    """Returns sinusoids of frame, height and width for `positions [rows, entries]`.

    Returns:
        `[rows, entries, hidden]`, fp32: for each axis its sines, then its cosines.
    """
    parts = []
    for at, size in zip(
        coordinates(positions, config.latent_shape), split(config.hidden_size), strict=True
    ):
        angles = at[..., None] * _frequencies(size, ABSOLUTE_THETA, at)
        parts += [angles.sin(), angles.cos()]
    return torch.cat(parts, -1)


def _frequencies(channels: int, theta: float, like: Tensor) -> Tensor:
    """Radians a step, `[channels / 2]` fp32."""
    exponents = torch.arange(0, channels, 2, dtype=torch.float32, device=like.device) / channels
    return 1.0 / theta**exponents


def _stretched(config: CosmosARConfig, frequencies: Tensor, original: int) -> Tensor:
    """YaRN: divide slow frequencies by the scale, keep fast ones, blend between.

    Cosmos leaves out YaRN's correction of the attention temperature, so it is left out here.
    """
    if config.yarn_scale is None:
        return frequencies
    fast, slow = (
        2 * math.pi * turns / original for turns in (config.yarn_beta_fast, config.yarn_beta_slow)
    )
    ramp = ((frequencies - slow) / (fast - slow)).clamp(0, 1)
    return frequencies * ((1 - ramp) / config.yarn_scale + ramp)


class CosmosLayer(Qwen3DecoderLayer):
    """Qwen3's layer, whose queries and keys are normalised head by head only if the config says so.

    Entries that continue a cache need a mask, unless there is only one.
    """

    def __init__(self, config: CosmosARConfig, layer_idx: int) -> None:
        kind: Any = config
        super().__init__(kind, layer_idx)
        if not config.use_qk_norm:
            attention: Any = self.self_attn
            attention.q_norm = attention.k_norm = nn.Identity()


class CosmosARPreTrainedModel(PreTrainedModel):
    """Says how the models are loaded, saved and initialised."""

    config: CosmosARConfig
    config_class = CosmosARConfig
    base_model_prefix = "model"
    _no_split_modules = ["CosmosLayer"]  # noqa: RUF012  # transformers reads it off the class
    _skip_keys_device_placement = list(CACHE_NAMES)  # noqa: RUF012
    _supports_sdpa = True


class CosmosARModel(CosmosARPreTrainedModel):
    """The decoder, which is embedding, layers and final norm."""

    def __init__(self, config: CosmosARConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            CosmosLayer(config, number) for number in range(config.num_hidden_layers)
        )
        self.norm = Qwen3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    @takes_either_name
    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Run the decoder.

        Args:
            input_ids: codes, `[rows, entries]`.
            inputs_embeds: `[rows, entries, hidden]` instead. Positions are added in here.
            attention_mask: `None` for causal; `[rows, slots]` with 0 on padding; or ready,
                `[rows or 1, 1, entries, slots]`, bool or additive.
            position_ids: raster indices into the clip, `[rows or 1, entries]`; by default the next.
            cache: a cache to continue and fill.
            use_cache: make a cache where none is given; by default outside of training.

        Returns:
            `last_hidden_state [rows, entries, hidden]` and the cache.

        Raises:
            SoonerError: both or neither of `input_ids` and `inputs_embeds` given.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise SoonerError("CosmosAR takes either input_ids or inputs_embeds; give one of them")
        states = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        if position_ids is None:
            seen = 0 if cache is None else cache.get_seq_length()
            position_ids = torch.arange(states.shape[1], device=states.device)[None] + seen
        # Positions stay out of this: it would take a jump among them for the start of another text.
        mask = create_causal_mask(self.config, states, attention_mask, cache)
        cosines, sines = (part.to(states.dtype) for part in rotation(self.config, position_ids))
        place = None
        if self.config.apply_abs_pos_emb:
            place = absolute(self.config, position_ids).to(states.dtype)
        options: dict[str, Any] = {CACHE: cache}
        for layer in self.layers:
            states = layer(
                states if place is None else states + place,
                position_embeddings=(cosines, sines),
                attention_mask=mask,
                **options,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(states), **options)


class CosmosARForCausalLM(CosmosARPreTrainedModel, GenerationMixin):
    """The decoder that has a head over the codes."""

    def __init__(self, config: CosmosARConfig) -> None:
        super().__init__(config)
        self.model = CosmosARModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    forward: Any = Qwen3ForCausalLM.forward
