"""The DFlash drafter: a few bidirectional layers that denoise a block of tokens in one forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
)

from ...errors import SoonerError
from ..draft_module import DraftModule, Rotation, rotated, whole_vocabulary
from ..published import CONFIG, Weights
from .config import DFlashConfig

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Told `(layer, queries [rows, heads, entries, dim], keys, values [rows, kv_heads, entries, dim])`
of a block; gives what its queries found, as the queries."""


RENAMES = (("encoder.fc.", "fc."), ("encoder.output_norm_enc.", "hidden_norm."))
"""What transformers' assistants call them."""

FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Projections that vLLM keeps in one tensor, one below the other."""


class DFlashModel(DraftModule):
    """Drafts blocks from the target's states (DFlash, Chen et al. 2026, arXiv 2602.06036).

    An entry of the *context* is `hidden_norm(fc([s_1; ...; s_n]))` of a committed token, made from
    the target's states of n of its layers. It is the same for all layers, each of which makes keys
    and values of it; queries come from the block alone. The *block* is the embedding of the last
    committed token (the anchor, which the target has not forwarded yet) and of mask tokens; its
    entries see the whole context and, unless a layer is causal, each other. What the target's LM
    head makes of entry `i` is the marginal distribution of the token at place `i`.

    Positions number the tokens of a row, from 0, also for targets with M-RoPE: what is published
    for them (`rope_scaling` null; vLLM refuses M-RoPE drafters) trains it so.

    Args:
        config: sizes.
    """

    kind, title = "DFlash drafter", "DFlash"
    methods = ("dflash", "ddtree")
    config: DFlashConfig

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config)
        count = config.num_hidden_layers
        qwen3 = config.as_transformers(
            Qwen3Config, num_hidden_layers=count, attention_bias=config.attention_bias,
            hidden_act=config.hidden_act,
        )  # fmt: skip
        self.fc = nn.Linear(config.states_width, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(qwen3, layer) for layer in range(count))
        self.norm = Qwen3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Qwen3RotaryEmbedding(qwen3)

    @staticmethod
    def matches(config: Mapping[str, Any], names: set[str]) -> bool:
        spec = config.get("speculative_config")
        kinds = [
            *(config.get("architectures") or ()),
            config.get("speculators_model_type"),
            config.get("model_type"),
            spec.get("method") if isinstance(spec, Mapping) else None,
        ]
        return "dflash" in str(kinds).lower() or config.keys() >= {
            "mask_token_id",
            "target_layer_ids",
        }

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        sizes = DFlashConfig.of_layout(config, folder / CONFIG)
        model, weights = cls(sizes), Weights.read(folder, cls.kind, RENAMES)
        _split(weights, sizes)
        model.take_tables(weights)
        weights.fill(model)
        return model.eval()

    def published(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the drafter in z-lab's layout."""
        return self.config.published(), self.state_dict()

    def context(self, states: Tensor) -> Tensor:
        """Returns entries of the context, `[rows, entries, hidden]`.

        Args:
            states: of the target's layers, side by side, `[rows, entries, layers * hidden]`.
        """
        return self.hidden_norm(self.fc(states.to(self.device, self.dtype)))

    def keys_values(self, layer: int, entries: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Returns keys and values of a layer, `[rows, kv_heads, entries, dim]` each.

        Args:
            entries: of the context, or of the block as they enter this layer's attention,
                `[rows, entries, hidden]`.
        """
        attention: Any = self.layers[layer].self_attn
        keys = attention.k_norm(self._split(attention.k_proj(entries)))
        return rotated(keys, rotation), self._split(attention.v_proj(entries))

    def denoise(self, embeds: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """Returns the states of blocks, `[rows, entries, hidden]`, for the LM head.

        Args:
            embeds: of their tokens, `[rows, entries, hidden]`.
            rotation: of their positions.
            attend: attention of a layer over the context and the blocks.
        """
        states = embeds.to(self.device, self.dtype) * self.config.input_embedding_scale
        for number, module in enumerate(self.layers):
            layer: Any = module
            entering = layer.input_layernorm(states)
            attention = layer.self_attn
            queries = attention.q_norm(self._split(attention.q_proj(entering)))
            keys, values = self.keys_values(number, entering, rotation)
            output = attend(number, rotated(queries, rotation), keys, values)
            states = states + attention.o_proj(output.transpose(1, 2).flatten(2))
            states = states + layer.mlp(layer.post_attention_layernorm(states))
        return self.norm(states)

    def embed(self, tokens: Tensor, adapter: Any) -> Tensor:
        """Returns embeddings of `tokens [rows, entries]`: the target's, unless a file brought
        others.
        """
        if self.embed_tokens is None:
            return adapter.embed_tokens(tokens.to(adapter.device))
        return self.embed_tokens(tokens.to(self.device))

    def logits(self, states: Tensor, adapter: Any) -> Tensor:
        """Returns logits of denoised entries, `[rows, entries, vocab]`, by the target's ids.

        Those that a reduced vocabulary lacks are minus infinity.

        Args:
            states: `[rows, entries, hidden]`.
            adapter: the target's.
        """
        config = self.config
        if self.lm_head is None:
            logits = adapter.logits(states.to(adapter.dtype))
        else:
            logits = self.lm_head(states)
        logits = logits * config.output_multiplier
        if (cap := config.final_logit_softcapping) is not None and cap > 0:
            logits = (logits / cap).tanh() * cap
        if self.token_ids is None:
            return logits
        return whole_vocabulary(logits, self.token_ids, adapter.vocab_size)

    def target_sizes(self, adapter: Any) -> dict[str, tuple[Any, Any]]:
        vocab = adapter.vocab_size
        sizes = {"vocab_size": (self.config.vocab_size or vocab, vocab)}
        return {**super().target_sizes(adapter), **sizes}

    def check(self, adapter: Any) -> None:
        mask, vocab = self.config.mask_token_id, adapter.vocab_size
        super().check(adapter)
        if self.embed_tokens is None and mask >= vocab:
            raise SoonerError(
                f"DFlash drafter has mask_token_id {mask}, but the vocabulary of "
                f"{type(adapter.model).__name__} ends at {vocab - 1}; resize the target's "
                "embedding as its card says"
            )


def _split(weights: Weights, config: DFlashConfig) -> None:
    """Split fused projections."""
    kv = config.num_key_value_heads * config.head_dim
    rows = {
        "self_attn.qkv_proj": [config.num_attention_heads * config.head_dim, kv, kv],
        "mlp.gate_up_proj": [config.intermediate_size] * 2,
    }
    for name, value in list(weights.tensors.items()):
        fused = next((key for key in FUSED if f".{key}." in name), None)
        if fused is not None and value.shape[0] == sum(rows[fused]):
            del weights.tensors[name]
            for part, piece in zip(FUSED[fused], value.split(rows[fused]), strict=True):
                weights.tensors[name.replace(fused, part)] = piece
