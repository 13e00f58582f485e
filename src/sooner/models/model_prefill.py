"""Models whose decoder embeds the pictures itself: their prefill is their own forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ..engine.cache import CACHE_NAMES, SlotCache, cache_of
from ..engine.interface import Prompt
from ..errors import UnsupportedError
from .base import Adapter, Packing, decoder_arguments

EXTRA = "own_prefill"
"""Under this name the prompt's inputs travel to `decode`."""


@dataclass(frozen=True)
class PrefillInputs:
    """A batch of prompts as the model itself takes them.

    Attributes:
        inputs: processed inputs, padded as they came, with `position_ids [rows, padded]`.
        packed: moves the padding to the end.
        copies: rows that each prompt becomes behind the prefill.
    """

    inputs: dict[str, Any]
    packed: Packing
    copies: int = 1


class ModelPrefill(Adapter):
    """One running position; keys and values of the prompt are taken from the model's own cache.

    Prompts are not there as embeddings with features in place, so they can neither be pruned nor
    prefilled in chunks.
    """

    @property
    def body(self) -> Any:
        return self.model

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        """Returns lengths and places of the prompts; their embeddings are of the tokens alone."""
        ids = inputs["input_ids"]
        mask = inputs.get("attention_mask")
        mask = torch.ones_like(ids) if mask is None else mask.to(ids.device)
        packed = Packing(mask.bool())
        places = (mask.cumsum(-1) - 1).clamp(min=0)  # as `generate` numbers them
        extras = {**inputs, "attention_mask": mask, "position_ids": places}
        return Prompt(
            embeds=packed(self.embedding(ids)),
            positions=self._positions(None, packed),
            lengths=packed.lengths,
            next_position=torch.tensor(packed.lengths, device=ids.device),
            visual=self.visual_tokens(inputs),
            extras={EXTRA: PrefillInputs(extras, packed)},
        )

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        inputs = kwargs.pop(EXTRA, None)
        if inputs is not None:
            return self._prefill(inputs, cache_of(kwargs))
        return self.step(embeds, positions, **kwargs)

    def step(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        """Run the decoder behind a prompt; `[rows, entries, hidden]` in and out."""
        return super().decode(embeds, positions, **kwargs)

    def _prefill(self, inputs: PrefillInputs, cache: SlotCache) -> Tensor:
        """Returns the model's own prefill, its keys and values packed into the slots."""
        arguments = decoder_arguments(self.body, self.decoder, inputs.inputs)
        arguments = {name: value for name, value in arguments.items() if name not in CACHE_NAMES}
        filled = DynamicCache()
        hidden = self.decoder(**self.named({**arguments, "cache": filled, "use_cache": True}))[0]
        layers: Any = filled.layers
        for layer, slots in zip(layers, cache.slot_layers, strict=True):
            slots.update(*(_packed_heads(states, inputs) for states in (layer.keys, layer.values)))
        return inputs.packed(hidden).repeat_interleave(inputs.copies, 0)

    def repeat_extras(self, prompt: Prompt, copies: int) -> dict[str, Any]:
        inputs = prompt.extras[EXTRA]
        return {EXTRA: replace(inputs, copies=inputs.copies * copies)}

    def prune_prompt(self, prompt: Prompt, indices: list[Tensor]) -> Prompt:
        raise UnsupportedError(
            f"{type(self.model).__name__} embeds its pictures inside its decoder, where visual "
            "tokens can't be pruned; use a method that doesn't prune"
        )

    def cut_extras(self, prompt: Prompt, start: int, end: int) -> dict[str, Any]:
        raise UnsupportedError(
            f"{type(self.model).__name__} embeds its pictures inside its decoder, which takes a "
            "prompt as a whole; leave prefill_chunk_size unset"
        )


def _packed_heads(states: Tensor, inputs: PrefillInputs) -> Tensor:
    """`[prompts, heads, padded, dim]` to `[rows, heads, width, dim]`."""
    packed = inputs.packed(states.transpose(1, 2)).transpose(1, 2)
    return packed.repeat_interleave(inputs.copies, 0)
