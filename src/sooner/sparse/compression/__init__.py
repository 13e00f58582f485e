"""Lossy compression of visual tokens before the decoder, all *approximate*."""

from .visionzip import VisionZip

__all__ = ["VisionZip"]
