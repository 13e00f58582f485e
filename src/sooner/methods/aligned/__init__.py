"""Drafts that were made beforehand, aligned with what the target says (HSD)."""

from .alignment import Experience
from .index import DraftIndex
from .method import HSD

__all__ = ["HSD", "DraftIndex", "Experience"]
