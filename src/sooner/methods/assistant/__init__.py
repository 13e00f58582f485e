"""Gemma 4's assistants: small drafters without keys of their own, which read the target's."""

from .method import Assistant
from .query_layers import AssistantModel
from .sizes import AssistantConfig

__all__ = ["Assistant", "AssistantConfig", "AssistantModel"]
