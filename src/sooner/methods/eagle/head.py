"""The draft head of EAGLE: one Llama layer that predicts the target's next state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from ...checks import check_keys
from ...errors import SoonerError
from ..draft_module import SIZES, DraftConfig
from ..published import CONFIG, Weights
from .base import DraftHead

KIND = "eagle_head"
KEYS = ("model_type", *SIZES, "rope_theta", "temperature", "target", "provenance")
"""Keys of its config.json."""


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

    title = "sooner's draft head"

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
        return config.get("model_type") == KIND

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        path = folder / CONFIG
        if (kind := config.get("model_type")) != KIND:
            raise SoonerError(
                f"'{path}' is of model_type {kind!r}, a draft head is of '{KIND}'; give a folder "
                "that `sooner train draft` wrote"
            )
        check_keys(f"key of '{path}'", config, KEYS)
        head = cls(DraftConfig.read(config, path))
        Weights.read(folder, cls.kind).fill(head)
        return head.eval()

    def published(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        fields = asdict(self.config)
        fields |= {"model_type": KIND, "rope_theta": self.config.rope_parameters["rope_theta"]}
        return {name: fields[name] for name in KEYS}, self.state_dict()

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        return self.fc(torch.cat([embeds.to(self.dtype), states.to(self.dtype)], -1))
