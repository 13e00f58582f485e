"""Gemma 4's assistants: small drafters without keys of their own, which read the target's."""

from .method import Assistant
from .model import AssistantConfig, AssistantModel

__all__ = ["Assistant", "AssistantConfig", "AssistantModel"]
