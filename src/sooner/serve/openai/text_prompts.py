"""Prompts of `/v1/completions`: texts or token ids to inputs."""

from __future__ import annotations

from typing import Any

import torch

from .errors import BadRequestError
from .protocol import CompletionRequest
from .served import Prepared, ServedModel


def prepare_text(
    served: ServedModel, prompt: str | list[int], request: CompletionRequest
) -> Prepared:
    """Returns inputs of one prompt; a text gets the tokenizer's special tokens, ids are taken as
    they are.

    Args:
        request: says whether it does not, and how many of the last tokens are kept.

    Raises:
        BadRequestError: it has no token, or one that the model does not have.
    """
    ids: Any = prompt
    if isinstance(prompt, str):
        is_bare = request.add_special_tokens is False
        ids = served.tokenizer(prompt, add_special_tokens=not is_bare)["input_ids"]
    if (limit := request.truncate_prompt_tokens) is not None:
        ids = ids[-(served.max_model_len - (request.limit or 1) if limit == -1 else limit) :]
    if not ids:
        raise BadRequestError("prompt", "prompt has no token; send some text")
    if (largest := max(ids)) >= served.vocab_size:
        raise BadRequestError(
            "prompt", f"prompt has token {largest}, and the model has {served.vocab_size}"
        )
    tokens = torch.tensor([ids])  # [1, tokens]
    return Prepared({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, len(ids))
