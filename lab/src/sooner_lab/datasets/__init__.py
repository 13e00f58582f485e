"""Benchmarks from the hub or from a local folder: videos to caption, questions about them, prompts
to draw, clips to continue."""

from .clips import read_clips
from .loading import DETAILED_PROMPT, Item, load
from .prompts import PROMPT_SETS, read_prompts
from .questions import QUESTION_SETS, Question, load_questions
from .schemas import SCHEMAS, Schema

__all__ = [
    "DETAILED_PROMPT",
    "PROMPT_SETS",
    "QUESTION_SETS",
    "SCHEMAS",
    "Item",
    "Question",
    "Schema",
    "load",
    "load_questions",
    "read_clips",
    "read_prompts",
]
