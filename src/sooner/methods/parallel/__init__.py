"""ParallelVLM: draft and target run at once, the draft sees only the tokens that matter."""

from .method import ParallelVLM
from .standing import StandingDraft

__all__ = ["ParallelVLM", "StandingDraft"]
