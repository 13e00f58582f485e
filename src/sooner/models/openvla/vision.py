"""OpenVLA's eyes: DINOv2 and SigLIP side by side, and the projector behind them.

The towers are transformers' own embeddings and encoders without final norm and head, which the
policy never had: it reads the states behind the last block but one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.models.dinov2_with_registers import modeling_dinov2_with_registers as dino
from transformers.models.dinov2_with_registers.modeling_dinov2_with_registers import (
    Dinov2WithRegistersEmbeddings,
    Dinov2WithRegistersEncoder,
)
from transformers.models.siglip.modeling_siglip import SiglipEncoder, SiglipVisionEmbeddings

from .config import OpenVLAConfig

# The projections of DINOv2's attention, as older versions of transformers name them and newer ones.
_FORMER = ("attention.query", "attention.key", "attention.value", "output.dense")
_PRESENT = ("q_proj", "k_proj", "v_proj", "o_proj")
DINO_PROJECTIONS = _FORMER if hasattr(dino, "Dinov2WithRegistersSelfAttention") else _PRESENT
"""Query, key, value and output inside of a block's `attention`, in the installed transformers."""


def renamed_projections() -> dict[str, str]:
    """From the names that the other transformers gives DINOv2's projections to the installed one's.

    A policy saved under one is so read under the other.
    """
    other = _PRESENT if DINO_PROJECTIONS == _FORMER else _FORMER
    return {
        f"attention.{source}": f"attention.{ours}"
        for source, ours in zip(other, DINO_PROJECTIONS, strict=True)
    }


class DinoTower(nn.Module):
    """DINOv2 with registers; pixels in ImageNet's normalisation."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__()
        self.prefix = 1 + config.dino_config.num_register_tokens
        self.embeddings = Dinov2WithRegistersEmbeddings(config.dino_config)
        self.encoder = Dinov2WithRegistersEncoder(config.dino_config)

    def forward(self, pixels: Tensor) -> Tensor:
        """Maps `[rows, 3, side, side]` to `[rows, patches, width]`."""
        states = self.encoder(self.embeddings(pixels)).last_hidden_state
        return states[:, self.prefix :]


class SiglipTower(nn.Module):
    """The tower that is SigLIP; it takes pixels in [-1, 1]."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__()
        if config.siglip_config._attn_implementation is None:
            # Only a whole model would set it.
            config.siglip_config._attn_implementation = "sdpa"
        self.embeddings = SiglipVisionEmbeddings(config.siglip_config)
        self.encoder = SiglipEncoder(config.siglip_config)

    def forward(self, pixels: Tensor) -> Tensor:
        """Maps `[rows, 3, side, side]` to `[rows, patches, width]`."""
        return self.encoder(self.embeddings(pixels)).last_hidden_state


class FusedProjector(nn.Module):
    """Maps both towers' features of a patch to one token of the decoder."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__()
        width = config.dino_config.hidden_size + config.siglip_config.hidden_size
        hidden = config.text_config.hidden_size
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, hidden)
        self.fc3 = nn.Linear(hidden, hidden)
        self.act = nn.GELU()

    def forward(self, features: Tensor) -> Tensor:
        """Maps `[rows, patches, dino + siglip]` to `[rows, patches, hidden]`."""
        return self.fc3(self.act(self.fc2(self.act(self.fc1(features)))))


class VisionBackbone(nn.Module):
    """Maps the picture in both normalisations, six channels, to the features of its patches."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__()
        self.featurizer = DinoTower(config)
        self.fused_featurizer = SiglipTower(config)

    def forward(self, pixels: Tensor) -> Tensor:
        """Maps `[rows, 6, side, side]` to `[rows, patches, dino + siglip]`."""
        dino, siglip = pixels[:, :3], pixels[:, 3:]
        return torch.cat([self.featurizer(dino), self.fused_featurizer(siglip)], dim=-1)
