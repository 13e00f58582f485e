"""Reads the weights of assistants by the names under which they are published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import SoonerError
from ..eagle.published import check_names, read_weights
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
    model = AssistantModel(read_config(config, str(folder / "config.json")))
    weights = {name.removeprefix("model."): tensor for name, tensor in read_weights(folder).items()}
    _fill(model, _tied(weights, model.config.tie_word_embeddings), str(folder))
    return model.eval()


def _tied(weights: dict[str, Tensor], is_tied: bool) -> dict[str, Tensor]:
    """Returns the weights with one LM head; an embedding beside it is ignored."""
    embedding = weights.pop(EMBEDDING, None)
    if is_tied and embedding is not None:
        weights[HEAD] = embedding
    return weights


def _fill(model: AssistantModel, weights: Mapping[str, Tensor], where: str) -> None:
    check_names(Path(where), model, {n: (n, w) for n, w in weights.items()}, "assistant")
    if (clusters := model.masked_embedding) is not None:
        ids = weights["masked_embedding.token_ordering"].long()
        if not torch.equal(ids.sort()[0], clusters.token_ordering):
            raise SoonerError(
                f"tensor 'masked_embedding.token_ordering' of assistant '{where}' does not hold "
                f"each of {len(ids)} tokens once; give the whole folder"
            )
    model.load_state_dict(dict(weights))
