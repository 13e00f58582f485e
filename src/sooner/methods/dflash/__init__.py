"""DFlash: a drafter that fills a block in one forward; DDTree: trees of its marginals."""

from .denoiser import DFlashConfig, DFlashModel
from .method import DDTree, DFlash

__all__ = ["DDTree", "DFlash", "DFlashConfig", "DFlashModel"]
