"""The robot miniature: OpenVLA's architecture, deep and narrow, with small towers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sooner.models.openvla.config import OpenVLAConfig
from sooner.models.openvla.model import OpenVLAForActionPrediction

from ..training import waves
from . import words
from .collect import HORIZON

SIDE, PATCH = 112, 14
GRID = SIDE // PATCH
POSITIONS = 128
STATISTICS = "metaworld"
NAMES = ("dx", "dy", "dz", "gripper")


@dataclass(frozen=True)
class RobotShape:
    """Sizes of the decoder and of both towers, whose blocks are as many."""

    layers: int
    width: int
    heads: int
    intermediate: int
    vision_layers: int
    vision_width: int
    vision_heads: int


TARGET = RobotShape(20, 128, 4, 256, 3, 64, 4)


def build_config(shape: RobotShape, statistics: dict[str, Any]) -> OpenVLAConfig:
    """The checkpoint's config; `statistics` are those of its demonstrations."""
    tower = {
        "hidden_size": shape.vision_width,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": shape.vision_heads,
        "image_size": SIDE,
        "patch_size": PATCH,
    }
    text = {
        "vocab_size": words.VOCABULARY,
        "hidden_size": shape.width,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return OpenVLAConfig(
        dino_config={**tower, "mlp_ratio": 2, "num_register_tokens": 4},
        siglip_config={**tower, "intermediate_size": 2 * shape.vision_width},
        text_config=text,
        pad_to_multiple_of=words.PADDING,
        n_action_bins=words.ACTIONS,
        action_horizon=HORIZON,
        trailing_token_id=words.SPECIALS.index(words.SPACE),
        image_token_id=words.IMAGE_ID,
        norm_stats={STATISTICS: {"action": statistics}},
    )


def statistics(actions: np.ndarray) -> dict[str, Any]:
    """Statistics of the actions `[records, horizon, dims]` that a checkpoint was trained on.

    The gripper is left as it is, as in OpenVLA's data sets.
    """
    flat = actions.reshape(-1, actions.shape[-1]).astype(np.float64)
    return {
        "q01": np.quantile(flat, 0.01, axis=0).round(6).tolist(),
        "q99": np.quantile(flat, 0.99, axis=0).round(6).tolist(),
        "mask": [True] * (flat.shape[1] - 1) + [False],
        "names": list(NAMES),
    }


def build_model(shape: RobotShape, stats: dict[str, Any]) -> OpenVLAForActionPrediction:
    """A fresh fp32 policy; weights come from torch's global generator, as everywhere in HF."""
    model = OpenVLAForActionPrediction(build_config(shape, stats)).float()
    towers, positions = model.model.vision_backbone, waves(GRID, shape.vision_width)
    with torch.no_grad():
        towers.fused_featurizer.embeddings.position_embedding.weight.copy_(positions)
        towers.featurizer.embeddings.position_embeddings[0, 1:] = positions
    model.generation_config.eos_token_id = None  # an action ends by its length
    model.generation_config.pad_token_id = 0
    model.generation_config.do_sample = False
    return model
