"""Reads the weights of assistants by the names under which they are published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...errors import SoonerError
from ..published import CONFIG, Weights
from .query_layers import AssistantModel
from .sizes import read_config

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"


def load(folder: Path, config: Mapping[str, Any]) -> AssistantModel:
    """Returns an assistant in eval mode, fp32.

    Args:
        folder: with its weights.
        config: its config.json.

    Raises:
        SoonerError: a key or tensor that is unknown, missing or misshapen, by its name.
        UnsupportedError: an option of the layout that can't be run.
    """
    model = AssistantModel(read_config(config, str(folder / CONFIG)))
    weights = Weights.read(folder, "assistant")
    # There is one LM head; an embedding beside it is ignored.
    embedding = weights.tensors.pop(EMBEDDING, None)
    if model.config.tie_word_embeddings and embedding is not None:
        weights.tensors[HEAD] = embedding
    weights.fill(model)
    if (clusters := model.masked_embedding) is not None:
        ids = clusters.token_ordering
        if not torch.equal(ids.sort()[0], torch.arange(len(ids))):
            raise SoonerError(
                f"tensor 'masked_embedding.token_ordering' of assistant '{folder}' does not hold "
                f"each of {len(ids)} tokens once; give the whole folder"
            )
    return model.eval()
