"""EAGLE-2: a trained draft head on the target's states, and dynamic draft trees."""

from .config import EagleConfig
from .head import EagleHead
from .method import Eagle

__all__ = ["Eagle", "EagleConfig", "EagleHead"]
