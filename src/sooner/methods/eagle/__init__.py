"""Draft heads on a target's states (EAGLE, EAGLE-3, native MTP), and dynamic trees (EAGLE-2)."""

from .eagle3 import Eagle3Config, Eagle3Head
from .head import EagleHead
from .method import Eagle
from .mtp import MtpConfig, MtpHead

__all__ = [
    "Eagle",
    "Eagle3Config",
    "Eagle3Head",
    "EagleHead",
    "MtpConfig",
    "MtpHead",
]
