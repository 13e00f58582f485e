"""Cosmos-1.0's autoregressive video model: a Llama-like decoder whose positions lie in a box.

What differs from Llama: RoPE over frame, row and column, RMS-normalised queries and keys, and,
where the config asks for it, absolute sinusoids added to the input of every layer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from ...engine.cache import CACHE, CACHE_NAMES, takes_either_name
from ...errors import SoonerError, UnsupportedError
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
    """Returns channels for frame, height and width: two even thirds, and what is left for the
    frame.
    """
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


def rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn queries or keys.

    Args:
        states: `[rows, heads, entries, head_dim]`.
        cosines, sines: from `rotation`, in the dtype of `states`.
    """
    first, second = states.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return states * cosines[:, None] + turned * sines[:, None]


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


class CosmosRMSNorm(nn.Module):
    """Normalises the last axis by its root mean square in fp32; scales in the states' dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: Tensor) -> Tensor:
        normed = functional.rms_norm(states, states.shape[-1:], eps=self.eps)
        return normed * self.weight.to(states.dtype)


class CosmosAttention(nn.Module):
    """Runs grouped-query attention with normalised, rotated queries and keys."""

    def __init__(self, config: CosmosARConfig, layer_idx: int) -> None:
        super().__init__()
        assert config.head_dim is not None
        assert config.num_key_value_heads is not None
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        queries = config.num_attention_heads * self.head_dim
        keys = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        norm = CosmosRMSNorm if config.use_qk_norm else _no_norm
        self.q_norm = norm(self.head_dim, config.rms_norm_eps)
        self.k_norm = norm(self.head_dim, config.rms_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """`[rows, entries, hidden]` to the same; the mask is bool or additive, or causal if `None`.

        Entries that continue a cache need a mask, unless there is only one.
        """
        heads = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_norm(self.q_proj(hidden_states).view(heads)).transpose(1, 2)
        key = self.k_norm(self.k_proj(hidden_states).view(heads)).transpose(1, 2)
        value = self.v_proj(hidden_states).view(heads).transpose(1, 2)
        turn = [part.to(query.dtype) for part in position_embeddings]
        query, key = rotate(query, *turn), rotate(key, *turn)  # [rows, heads, entries, head_dim]
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        if attention_mask is not None and key.is_cuda:
            # No fast CUDA kernel takes grouped heads together with a mask.
            key, value = (part.repeat_interleave(self.groups, 1) for part in (key, value))
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attention_mask,
            is_causal=attention_mask is None and query.shape[2] > 1,
            enable_gqa=key.shape[1] < query.shape[1],
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class CosmosMLP(nn.Module):
    """An MLP that is a SwiGLU."""

    def __init__(self, config: CosmosARConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class CosmosLayer(nn.Module):
    """Runs attention and MLP, each after a norm and with a residual."""

    def __init__(self, config: CosmosARConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = CosmosAttention(config, layer_idx)
        self.mlp = CosmosMLP(config)
        self.input_layernorm = CosmosRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = CosmosRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """Maps `[rows, entries, hidden]` to the same; keywords go to the attention."""
        hidden_states = hidden_states + self.self_attn(
            hidden_states=self.input_layernorm(hidden_states), **kwargs
        )
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


def _no_norm(size: int, eps: float) -> nn.Module:
    return nn.Identity()


class CosmosARPreTrainedModel(PreTrainedModel):
    """Says how the models are loaded, saved and initialised."""

    config: CosmosARConfig
    config_class = CosmosARConfig
    base_model_prefix = "model"
    _no_split_modules = ["CosmosLayer"]  # noqa: RUF012  # transformers reads it off the class
    _skip_keys_device_placement = list(CACHE_NAMES)  # noqa: RUF012
    _supports_sdpa = True

    def __init__(self, config: CosmosARConfig) -> None:
        super().__init__(config)
        if config._attn_implementation != "sdpa":
            raise UnsupportedError(
                f"CosmosAR has no attention '{config._attn_implementation}'; "
                "load it with attn_implementation='sdpa'"
            )


class CosmosARModel(CosmosARPreTrainedModel):
    """The decoder, which is embedding, layers and final norm."""

    def __init__(self, config: CosmosARConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            CosmosLayer(config, number) for number in range(config.num_hidden_layers)
        )
        self.norm = CosmosRMSNorm(config.hidden_size, config.rms_norm_eps)
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
            position_ids: raster indices into the clip, `[rows or 1, entries]`; what follows the
                cache when left out.
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
            position_ids = _following(states, cache)
        # Positions stay out of this: it would take a jump among them for the start of another text.
        mask = create_causal_mask(self.config, states, attention_mask, cache)
        cosines, sines = (part.to(states.dtype) for part in rotation(self.config, position_ids))
        place = None
        if self.config.apply_abs_pos_emb:
            place = absolute(self.config, position_ids).to(states.dtype)
        for layer in self.layers:
            states = layer(
                states if place is None else states + place,
                position_embeddings=(cosines, sines),
                attention_mask=mask,
                cache=cache,
            )
        options: dict[str, Any] = {CACHE: cache}
        return BaseModelOutputWithPast(last_hidden_state=self.norm(states), **options)


class CosmosARForCausalLM(CosmosARPreTrainedModel, GenerationMixin):
    """The decoder that has a head over the codes."""

    def __init__(self, config: CosmosARConfig) -> None:
        super().__init__(config)
        self.model = CosmosARModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
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
        labels: Tensor | None = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Run the model; arguments as in `CosmosARModel.forward`, and two more.

        Args:
            labels: codes `[rows, entries]`, not shifted; -100 is left out of the loss.
            logits_to_keep: logits of this many last entries alone; 0 for all.

        Returns:
            `logits [rows, entries, vocab]`, the cache, and the mean `loss` if labels are given.
        """
        outputs = self.model(
            input_ids=input_ids,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            use_cache=use_cache,
        )
        logits = self.lm_head(outputs.last_hidden_state[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE: outputs.get(CACHE)})


def _following(states: Tensor, cache: Cache | None) -> Tensor:
    """Returns positions behind the cache, `[1, entries]`."""
    seen = 0 if cache is None else cache.get_seq_length()
    return torch.arange(states.shape[1], device=states.device)[None] + seen
