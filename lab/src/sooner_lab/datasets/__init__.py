"""Benchmarks from the hub or from a local folder: videos to caption, prompts to draw, clips to
continue."""

from .clips import read_clips
from .loading import DETAILED_PROMPT, Item, load
from .prompts import PROMPT_SETS, read_prompts
from .schemas import SCHEMAS, Schema

__all__ = [
    "DETAILED_PROMPT",
    "PROMPT_SETS",
    "SCHEMAS",
    "Item",
    "Schema",
    "load",
    "read_clips",
    "read_prompts",
]
