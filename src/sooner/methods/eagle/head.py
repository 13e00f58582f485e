"""The draft head of EAGLE: one Llama layer that predicts the target's next state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from ..published import Weights, write
from .base import DraftHead
from .config import EagleConfig
from ..target_print import fingerprint


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

    Args:
        config: sizes.
    """

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config = config
        llama = config.llama()
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.layer = LlamaDecoderLayer(llama, 0)
        self.layer.input_layernorm = nn.Identity()  # type: ignore[assignment]
        self.rotary = LlamaRotaryEmbedding(llama)
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim

    @staticmethod
    def for_target(model: Any) -> EagleHead:
        """Returns a head with random weights for a loaded HF model, or for an adapter."""
        from ...models import Adapter, adapt

        adapter = model if isinstance(model, Adapter) else adapt(model)
        config = EagleConfig.like(adapter.text_config, fingerprint(adapter))
        return EagleHead(config).to(adapter.device)

    @property
    def attention(self) -> Any:
        return self.layer.self_attn

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        """What enters the layer, `[rows, entries, hidden]`, as both arguments."""
        return self.fc(torch.cat([embeds.to(self.dtype), states.to(self.dtype)], -1))

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        """Returns the next states, `[rows, entries, hidden]`, from the layer's input and its
        attention.
        """
        flat = attended.transpose(1, 2).flatten(2)
        states = fused + self.layer.self_attn.o_proj(flat)
        return states + self.layer.mlp(self.layer.post_attention_layernorm(states))

    def save_pretrained(self, folder: Path | str, dtype: torch.dtype | None = None) -> None:
        """Write `config.json` and `model.safetensors`, each whole or not at all.

        Args:
            dtype: of the file; by default the head's own.
        """
        write(folder, self.config.as_dict(), self.state_dict(), dtype)

    @staticmethod
    def from_pretrained(
        folder: Path | str,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> EagleHead:
        """Read a head.

        Raises:
            SoonerError: no head in this folder, or its files do not fit together.
        """
        head = EagleHead(EagleConfig.load(Path(folder)))
        Weights.read(Path(folder), "draft head").fill(head)
        return head.to(device, dtype).eval()
