"""OpenVLA policies, which `transformers` does not hold."""

from __future__ import annotations

from .checkpoint import load_published
from .config import OpenVLAConfig
from .loading import OpenVLA, load_policy
from .model import OpenVLAForActionPrediction, OpenVLAModel
from .pictures import PictureForm
from .processing import OpenVLAProcessor
from .statistics import (
    ActionStatistics,
    ActionTokens,
    decode_actions,
    encode_actions,
    read_statistics,
)

__all__ = [
    "ActionStatistics",
    "ActionTokens",
    "OpenVLA",
    "OpenVLAConfig",
    "OpenVLAForActionPrediction",
    "OpenVLAModel",
    "OpenVLAProcessor",
    "PictureForm",
    "decode_actions",
    "encode_actions",
    "load_policy",
    "load_published",
    "read_statistics",
]
