"""Benchmarks from the hub or from a local folder: videos to caption, prompts to draw, clips to
continue."""

from .clips import StartClip, load_clips
from .loading import DETAILED_PROMPT, Item, load
from .prompts import PROMPT_SETS, Prompt, load_prompts
from .schemas import SCHEMAS, Schema

__all__ = [
    "DETAILED_PROMPT",
    "PROMPT_SETS",
    "SCHEMAS",
    "Item",
    "Prompt",
    "Schema",
    "StartClip",
    "load",
    "load_clips",
    "load_prompts",
]
