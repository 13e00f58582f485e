"""Benchmarks of videos to caption, from the hub or from a local folder."""

from .loading import DETAILED_PROMPT, Item, load
from .schemas import SCHEMAS, Schema

__all__ = ["DETAILED_PROMPT", "SCHEMAS", "Item", "Schema", "load"]
