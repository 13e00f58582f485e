"""Prompts of `/v1/completions`: texts or token ids to inputs."""

from __future__ import annotations

from typing import Any

import torch

from .errors import BadRequestError
from .served import Prepared, ServedModel


def prepare_text(served: ServedModel, prompt: str | list[int]) -> Prepared:
    """Inputs of one prompt; a text gets the tokenizer's special tokens, ids are taken as they are.

    Raises:
        BadRequestError: it has no token, or one that the model does not have.
    """
    ids: Any = prompt
    if isinstance(prompt, str):
        ids = served.tokenizer(prompt)["input_ids"]
    if not ids:
        raise BadRequestError("prompt", "prompt has no token; send some text")
    if (largest := max(ids)) >= served.vocab_size:
        raise BadRequestError(
            "prompt", f"prompt has token {largest}, and the model has {served.vocab_size}"
        )
    tokens = torch.tensor([ids])  # [1, tokens]
    return Prepared({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, len(ids))
