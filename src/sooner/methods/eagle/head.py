"""What all draft heads share, one decoder layer that is asked for keys and queries apart; and the
head of EAGLE, a Llama layer that predicts the target's next state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from ..draft_module import DraftConfig, DraftModule, Rotation, rotated, saved_fields
from ..published import CONFIG, CONFIG_KEY, Weights, renamed


class DraftHead(DraftModule):
    """One decoder layer that goes on from a target's states.

    An entry is a state and the token behind it. `read` makes the head's own states of the target's,
    `fuse` an entry of such a state and an embedding, `keys_values` and `queries` what its attention
    takes, `estimate` the next state of its own, and `scores` the logits of what follows it.

    Keys and queries are asked for apart. Entries whose estimate is not read, such as those of a
    prompt, then cost their keys and values alone.

    Attributes:
        layer: with `self_attn`, `mlp` and norms.
        wants_positions: it takes the target's positions rather than counting tokens.
        sees_pixels: it takes the embeddings of pixels, not those of their placeholder tokens.
        default_top_k: continuations of a node by default; 1 makes chains.
    """

    layer: Any
    wants_positions: bool = False
    sees_pixels: bool = True
    default_top_k: int = 8

    @property
    def vocab_size(self) -> int | None:
        """Tokens that it can draft; `None` is all of the target's."""
        return None

    def layer_ids_for(self, adapter: Any) -> tuple[int, ...]:
        """`hidden_states` indices of a target that it reads; none is the last states alone.

        Raises:
            SoonerError: it does not know, for a target of so few layers.
        """
        return ()

    def read(self, states: Tensor) -> Tensor:
        """Returns the head's own states, `[rows, entries, hidden]`, of the target's."""
        return states

    def embed(
        self, embeds: Tensor, ids: Tensor | None = None, visual: Tensor | None = None
    ) -> Tensor:
        """Embeddings as the head takes them, `[rows, entries, hidden]`.

        Args:
            embeds: the target's.
            ids: their tokens, `[rows, entries]`, where it has a table of its own.
            visual: which of them are pixels, `[rows, entries]` bool.
        """
        return embeds

    def embed_prompt(self, adapter: Any, embeds: Tensor, ids: Tensor, visual: Tensor) -> Tensor:
        """Returns the embeddings of a prompt as `embed` does; placeholders have their ids."""
        if self.sees_pixels:
            return self.embed(embeds, ids, visual)
        ids = ids.clamp(0, adapter.vocab_size - 1)
        return self.embed(adapter.embed_tokens(ids), ids)

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        """What enters the layer, `[rows, entries, width]`."""
        raise NotImplementedError

    def attention_input(self, fused: Tensor) -> Tensor:
        """The part of `fuse`'s entries that queries, keys and values are made of."""
        return fused

    def residual(self, fused: Tensor) -> Tensor:
        """The part of `fuse`'s entries that attention is added to, `[rows, entries, hidden]`."""
        return fused

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        """Returns the next states `[rows, entries, hidden]` by the layer's input and attention."""
        layer, flat = self.layer, attended.transpose(1, 2).flatten(2)
        states = self.residual(fused) + layer.self_attn.o_proj(flat)
        made: Tensor = states + layer.mlp(layer.post_attention_layernorm(states))
        return made

    def scores(self, states: Tensor, adapter: Any) -> Tensor:
        """Returns logits behind the head's own states, `[rows, entries, target's vocabulary]`."""
        logits: Tensor = adapter.logits(states.to(adapter.dtype))
        return logits

    def keys_values(self, fused: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Returns keys and values of entries: `[rows, kv_heads, entries, head_dim]` each."""
        inputs, attention = self.attention_input(fused), self.layer.self_attn
        keys = self._normed(self._split(attention.k_proj(inputs)), "k_norm")
        return self.turned(keys, rotation), self._split(attention.v_proj(inputs))

    def queries(self, fused: Tensor, rotation: Rotation) -> Tensor:
        """Returns queries of entries: `[rows, heads, entries, head_dim]`."""
        queries = self._split(self.layer.self_attn.q_proj(self.attention_input(fused)))
        return self.turned(self._normed(queries, "q_norm"), rotation)

    def turned(self, states: Tensor, rotation: Rotation) -> Tensor:
        """Returns queries or keys `[rows, heads, entries, head_dim]` at their positions."""
        return rotated(states, rotation)

    def _normed(self, states: Tensor, name: str) -> Tensor:
        norm = getattr(self.layer.self_attn, name, None)
        return states if norm is None else norm(states)


KIND = "eagle_head"
"""The `model_type` of heads that sooner 0.2 has written."""
ARCHITECTURE, LAYER = "LlamaForCausalLMEagle", "layers.0."


class EagleHead(DraftHead):
    """Predicts the target's next state from its last one and the token that followed it.

    Entry `i` takes the target's state `f_i` (its decoder's output, final norm included) and the
    embedding `e_{i+1}` of the next token, `layer(fc([e_{i+1}; f_i]))`, and gives an estimate of
    `f_{i+1}`, which the target's own LM head turns into logits (EAGLE, Li et al. 2024, section
    3.1). Embedding and LM head are the target's and are not stored here.

    As in EAGLE the layer has no norm before its attention, and none behind its MLP: `fc` may give
    each half of its input the size that attention needs, and the estimate is of a state that the
    target has normalised already. RoPE positions count the tokens of a row, whatever positions the
    target gives them, so the head is the same for every family.
    """

    title = "EAGLE-2"

    def __init__(self, config: DraftConfig) -> None:
        super().__init__(config)
        llama = config.as_transformers(LlamaConfig, num_hidden_layers=1)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.layer = LlamaDecoderLayer(llama, 0)
        self.layer.input_layernorm = nn.Identity()
        self.rotary = LlamaRotaryEmbedding(llama)

    @staticmethod
    def for_target(model: Any) -> EagleHead:
        """Returns a head with random weights for a loaded HF model, or for an adapter."""
        from ...models import Adapter, adapt

        adapter = model if isinstance(model, Adapter) else adapt(model)
        return EagleHead(DraftConfig.like(adapter)).to(adapter.device)

    @staticmethod
    def matches(config: Mapping[str, Any], names: set[str]) -> bool:
        # No other kind has a layer without a norm before its attention.
        bare = {name.removeprefix("model.") for name in names}
        has_layer = {"fc.weight", f"{LAYER}self_attn.q_proj.weight"} <= bare
        has_norm = f"{LAYER}input_layernorm.weight" in bare
        return config.get("model_type") == KIND or (has_layer and not has_norm)

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        head = cls(DraftConfig.read(config, folder / CONFIG))
        weights = Weights.read(folder, cls.kind, [(LAYER, "layer.")])
        weights.tensors.pop("embed_tokens.weight", None)  # the target's
        if "fc.bias" not in weights.tensors:
            head.fc = nn.Linear(head.fc.in_features, head.fc.out_features, bias=False)
        weights.fill(head)
        return head.eval()

    def published(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the head in SafeAILab's layout, as SGLang reads it."""
        state = self.state_dict()
        tensors = {renamed(name, [("layer.", LAYER)]): value for name, value in state.items()}
        content = self.config.decoder(
            "llama", architectures=[ARCHITECTURE], bias=self.fc.bias is not None
        )
        return {**content, CONFIG_KEY: saved_fields(self.config)}, tensors

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        return self.fc(torch.cat([embeds.to(self.dtype), states.to(self.dtype)], -1))
