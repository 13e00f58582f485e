"""Gemma 3n: windows, shared keys, inputs of each layer made from ids, and a network of timm."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import AutoModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from . import words
from .sliding import COLOURS, PER_LAYER, PICTURES, SIDE, SLIDING
from .species import Species
from .tiny import tiny

WIDTH, TOKENS = 32, 4
KINDS_OF_ID: dict[str, dict[str, Any]] = {
    "vision_config": {
        "hidden_size": WIDTH, "vocab_offset": words.IMAGE, "vocab_size": words.AUDIO - words.IMAGE,
    },
    "audio_config": {
        "hidden_size": WIDTH, "vocab_offset": words.AUDIO, "vocab_size": words.VOCAB - words.AUDIO,
        "input_feat_size": 8, "conf_num_attention_heads": 2, "conf_num_hidden_layers": 1,
        "sscp_conv_channel_size": (4, 4),
    },
}  # fmt: skip
"""Ids from `IMAGE` and from `AUDIO` up have embeddings of their own, whoever says them."""

BUILD = tiny(
    "gemma3n",
    text_config={
        **SLIDING, **PER_LAYER, "altup_num_inputs": 2, "laurel_rank": 4,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
    },
    boi_token_id=words.VISION_START, eoi_token_id=words.VISION_END, image_token_id=words.IMAGE,
    audio_token_id=words.AUDIO, vision_soft_tokens_per_image=TOKENS, tie_word_embeddings=False,
    **KINDS_OF_ID,
)  # fmt: skip


class Tower(nn.Module):
    """Stands for the convolutional network, for which timm would have to be installed."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(COLOURS, WIDTH, SIDE // 2, SIDE // 2)

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutputWithPooling:
        states = self.convolution(pixel_values)  # [pictures, width, 2, 2]
        return BaseModelOutputWithPooling(last_hidden_state=torch.tanh(states))


def gemma3n() -> Any:
    real = AutoModel.from_config

    def from_config(config: Any, **options: Any) -> Any:
        return Tower() if config.model_type == "gemma3n_vision" else real(config, **options)

    with mock.patch.object(AutoModel, "from_config", from_config):
        return BUILD()


inputs = words.picture_inputs(
    words.framed(words.IMAGE, TOKENS), COLOURS, SIDE, SIDE, types="token_type_ids"
)
"""Pictures of 4 tokens between marks."""

SPECIES = (Species("gemma3n", gemma3n, inputs, PICTURES, "sliding"),)
