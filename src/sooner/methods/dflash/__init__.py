"""DFlash: a drafter that fills a block in one forward; DDTree: trees of its marginals."""

from .method import DDTree, DFlash
from .model import DFlashConfig, DFlashModel

__all__ = ["DDTree", "DFlash", "DFlashConfig", "DFlashModel"]
