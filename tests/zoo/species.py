"""A species of the zoo: how to build a tiny model of a type, and inputs for it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Inputs = Callable[[Any, str, int, int], dict[str, Any]]
"""(model, kind of prompt, rows, seed) to what the family's processor would hand over."""


@dataclass(frozen=True)
class Species:
    """A type of model.

    Attributes:
        model_type: as in transformers' mapping of types that read pictures and write text.
        build: a model with sizes as small as its class allows, weights as they come.
        inputs: processed prompts for it.
        kinds: of prompts that it takes, of `words.KINDS`.
        refused: of a type that is refused today, part of the reason that is told, as a pattern.
        unseen: of a type that is decoded for words alone, part of what is told of its pictures.
        trees: whether its drafts may be trees.
        spread: of its random weights; larger ones attend more sharply.
        head: what the scores are multiplied by, beside that.
        noise: of the weights of a draft that is right now and then, relative to their spread.
        is_causal: whether it is; others are refused by their configs.
        alone: its own `generate` lets rows see their padding, so that what it says to a row alone
            is the law.
    """

    model_type: str
    build: Callable[[], Any]
    inputs: Inputs
    kinds: tuple[str, ...] = ("text", "image")
    refused: str = ""
    unseen: str = ""
    trees: bool = True
    spread: float = 0.12
    head: float = 1.0
    noise: float = 0.06
    is_causal: bool = True
    alone: bool = False

    def __str__(self) -> str:
        return self.model_type


def filled(species: Species, seed: int = 0) -> Any:
    """A model in fp64 whose random weights are large enough that attention really selects.

    In fp64 two scores are never so near that an order of sums decides between them: a difference
    is a bug and no tie.
    """
    torch.manual_seed(seed)
    built = species.build().double().eval()
    if not species.is_causal:
        return built  # some have neither embeddings nor a generation config
    made = torch.Generator().manual_seed(seed)
    head = built.get_output_embeddings()
    for name, weights in built.named_parameters():
        if weights.ndim > 1:
            wide = 2 * species.spread if "embed" in name else species.spread
            weights.data.normal_(0, wide, generator=made)
    if head is not None and head.weight is not built.get_input_embeddings().weight:
        head.weight.data *= species.head
    built.generation_config.eos_token_id = None
    built.generation_config.pad_token_id = 0
    return built


@functools.cache
def model_of(species: Species) -> Any:
    """The species' model; cached, so never change its weights."""
    return filled(species)


@functools.cache
def draft_of(species: Species) -> Any:
    """A copy with noise on its weights, which agrees with the model now and then."""
    shaken = copy.deepcopy(model_of(species))
    made = torch.Generator().manual_seed(7)
    for weights in shaken.parameters():
        if weights.ndim > 1:
            shake = torch.randn(weights.shape, generator=made, dtype=weights.dtype)
            weights.data += species.noise * weights.data.std() * shake
    return shaken
