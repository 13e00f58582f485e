"""Drafts that were made beforehand, aligned with what the target says (HSD)."""

from .index import DraftIndex
from .method import HSD
from .prior import Experience

__all__ = ["HSD", "DraftIndex", "Experience"]
