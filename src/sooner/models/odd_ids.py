"""Ids that a family embeds otherwise than its embedding does, wherever they stand.

A placeholder for pixels that a model says itself is a word that it reads in the next step. Some
families embed it as padding, some by a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .base import decoder_arguments

ROWS, WIDTH = 64, 64
"""Ids that are embedded at once when all are compared."""

KNOWN = "_sooner_odd_ids"
"""Under this name a model remembers them."""

EMBEDS = "inputs_embeds"


class OddIds:
    """What a family makes of a model's odd ids.

    Args:
        ids: those, `[odd]`.
        made: the decoder's arguments for them, `[odd, ...]` by name.
        vocabulary: ids that there are.
    """

    def __init__(self, ids: Tensor, made: Mapping[str, Tensor], vocabulary: int) -> None:
        self.made = made
        self.place = torch.full((vocabulary,), -1, device=ids.device)
        self.place[ids] = torch.arange(len(ids), device=ids.device)

    def put(self, name: str, tokens: Tensor, states: Tensor) -> Tensor:
        """Returns an argument `[rows, entries, ...]` with that of odd ids in their places."""
        place = self.place[tokens]
        is_odd = (place >= 0).view(*place.shape, *[1] * (states.ndim - 2))
        return torch.where(is_odd, self.made[name][place.clamp(min=0)], states)


def find(adapter: Any) -> list[int]:
    """Returns all ids for which the family's own forward hands its decoder something else.

    Raises:
        UnsupportedError: its forward takes no words without pictures.
    """
    vocabulary = min(adapter.vocab_size, adapter.embedding.weight.shape[0])
    result = list[int]()
    for ids in torch.arange(vocabulary, device=adapter.device).split(ROWS * WIDTH):
        width = min(WIDTH, len(ids))
        grid = torch.cat([ids, ids[:1].expand(-len(ids) % width)]).view(-1, width)
        ours = {EMBEDS: adapter.embed_tokens(grid), **adapter.step_extras(grid)}
        try:
            outputs = handed(adapter, grid, ours)
        except (ValueError, TypeError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UnsupportedError(
                f"{type(adapter.model).__name__} fails its self-check on words alone "
                f"({type(error).__name__}: {reason}); decode it with its own generate(), or write "
                "an adapter (docs/add-a-model.md)"
            ) from error
        for name, value in outputs.items():
            differs = (value != ours[name]).flatten(2).any(-1)
            result += grid[differs].tolist()
    return sorted(set(result))


def read(adapter: Any, ids: list[int]) -> OddIds | None:
    """Returns what becomes of odd ids, with the weights as they are now."""
    if not ids:
        return None
    tokens = torch.tensor(ids, device=adapter.device)
    made = handed(adapter, tokens[None], (EMBEDS, *adapter.step_extras(tokens[None])))
    return OddIds(tokens, {name: value[0] for name, value in made.items()}, adapter.vocab_size)


@torch.no_grad()
def handed(adapter: Any, tokens: Tensor, names: Iterable[str]) -> dict[str, Tensor]:
    """Returns the arguments that the family's forward hands its decoder for ids without pixels."""
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    arguments = decoder_arguments(adapter.body, adapter.decoder, adapter.placed(inputs))
    if arguments.get(EMBEDS) is None:
        arguments[EMBEDS] = adapter.embedding(arguments["input_ids"])
    return {
        name: arguments[name].to(adapter.device)
        for name in names
        if arguments.get(name) is not None
    }
