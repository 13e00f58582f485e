"""OpenVLA policies, which `transformers` does not hold."""

from __future__ import annotations

from .actions import ActionTokens
from .config import OpenVLAConfig
from .model import OpenVLAForActionPrediction, OpenVLAModel

__all__ = ["ActionTokens", "OpenVLAConfig", "OpenVLAForActionPrediction", "OpenVLAModel"]
