"""LLaVA-OneVision: SigLIP features in place of placeholder tokens, plain 1-D RoPE."""

from .base import Adapter


class LlavaOnevision(Adapter):
    """One running position for every token, visual ones included."""

    model_types = ("llava_onevision",)
