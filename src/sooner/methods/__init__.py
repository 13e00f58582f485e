"""Methods: one file each, saying how a draft is made."""

from .autoregressive import Autoregressive
from .base import Method, SoonerOutput
from .parallel import ParallelVLM
from .prompt_lookup import PromptLookup
from .speculative import Speculative

__all__ = ["Autoregressive", "Method", "ParallelVLM", "PromptLookup", "SoonerOutput", "Speculative"]
