"""Generic adapters of models whose new tokens attend to the prompt in a way of its own: to pictures
by cross-attention (Llama 3.2 Vision), or to all of it behind a window (Unlimited-OCR).

Their caches remember something of each row's prompt, and blocks are decoded with masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicLayer

from ..engine.cache import SlotCache
from ..engine.interface import Prompt, cache_of
from ..errors import UnsupportedError
from .base import REFERENCE, Packing
from .generic import Generic, generic_type

STATES, MASK = "cross_attention_states", "cross_attention_mask"
GATE = "full_text_row_masked_out_mask"
"""Arguments of a decoder with cross-attention: what pictures became, `[rows x tiles, patches,
hidden]`; what of it tokens see, additive, `[rows, 1, tokens, states]`; and 1 where they see any,
else 0, `[rows, 1, tokens, 1]`."""


class CrossCache(SlotCache):
    """Holds slots, and for layers with cross-attention keys and values of each row's pictures.

    Rows without pictures have keys and values of 0 and see nothing: their states stay.

    Args:
        layers: number of all layers.
        cross: which of them have cross-attention.
        capacity: as of `SlotCache`.

    Attributes:
        mask, gate: of new tokens, `[rows, 1, 1, states]` and `[rows, 1, 1, 1]`, as `MASK` and
            `GATE`; `None` without pictures.
    """

    def __init__(self, layers: int, cross: Iterable[int], capacity: int) -> None:
        self.cross_layers = {number: DynamicLayer() for number in cross}
        super().__init__(layers - len(self.cross_layers), capacity)
        slots: Iterator[Any] = iter(self.slot_layers)
        self.layers = [self.cross_layers.get(n) or next(slots) for n in range(layers)]
        self.mask: Tensor | None = None
        self.gate: Tensor | None = None

    @property
    def pictures(self) -> list[Tensor]:
        """What is remembered of pictures: mask, gate, and each layer's keys and values, whose
        second dimension from behind counts states."""
        if self.mask is None or self.gate is None:
            return []
        layers: Iterator[Any] = iter(self.cross_layers.values())
        states = (part for layer in layers for part in (layer.keys, layer.values))
        return [self.mask, self.gate, *states]

    @pictures.setter
    def pictures(self, tensors: list[Tensor]) -> None:
        self.mask, self.gate = tensors[:2] or (None, None)
        pairs: Iterator[Any] = iter(tensors[2:])
        for layer in self.cross_layers.values():
            layer.keys, layer.values = next(pairs, None), next(pairs, None)
            layer.is_initialized = bool(tensors)

    def set_lengths(self, lengths: list[int]) -> None:
        super().set_lengths(lengths)
        if not lengths:
            self.pictures = []

    def select_rows(self, rows: list[int]) -> None:
        if rows != list(range(len(self.lengths))):
            self.pictures = [tensor[rows] for tensor in self.pictures]
        super().select_rows(rows)

    def merge(self, other: SlotCache) -> None:
        assert isinstance(other, CrossCache)
        present, joining = self.pictures, other.pictures
        counts = len(self.lengths), len(other.lengths)
        super().merge(other)
        like = present or joining
        blank = [torch.finfo(tensor.dtype).min if n == 0 else 0 for n, tensor in enumerate(like)]
        states = max((part[0].shape[-1] for part in (present, joining) if part), default=0)
        merged = []
        for number, (tensor, value) in enumerate(zip(like, blank, strict=True)):
            rows = [
                part[number] if part else tensor.new_full((count, *tensor.shape[1:]), value)
                for part, count in zip((present, joining), counts, strict=True)
            ]
            if number != 1:  # no gate
                axis = -1 if number == 0 else -2
                missing = [(0, 0) * (-1 - axis) + (0, states - row.shape[axis]) for row in rows]
                rows = [pad(row, by, value=value) for row, by in zip(rows, missing, strict=True)]
            merged.append(torch.cat(rows))
        self.pictures = merged

    def nbytes(self) -> int:
        """Returns the bytes of slots and of what is remembered of pictures."""
        return super().nbytes() + sum(tensor.nbytes for tensor in self.pictures)


class Masked(Generic):
    """The adapter whose blocks are decoded with masks: attention to blocks reads a row's slots
    alone, and its windows hide prompts."""

    @property
    def takes_blocks(self) -> bool:
        return False


class CrossAttention(Masked):
    """The adapter of models of which some layers look at a prompt's pictures."""

    carried: ClassVar[frozenset[str]] = Generic.carried | {STATES, MASK, GATE}

    @property
    def _cross(self) -> list[int]:
        return list(self.text_config.cross_attention_layers)

    @property
    def layers(self) -> int:
        """Returns layers with slots."""
        return super().layers - len(self._cross)

    def open_cache(self, capacity: int) -> CrossCache:
        return CrossCache(super().layers, self._cross, capacity)

    def require_plain_causal(self, what: str, prompt: Prompt | None = None) -> None:
        raise UnsupportedError(
            f"{what} knows no cross-attention, and {type(self.model).__name__} has layers with it; "
            "leave it out"
        )

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        mask = inputs.get(MASK)  # [rows, tokens, pictures, tiles]
        if mask is not None and (missing := inputs["input_ids"].shape[1] - mask.shape[1]) > 0:
            # New tokens of a request that begins anew see what the prompt's last one does.
            last = mask[:, -1:].expand(-1, missing, -1, -1)
            inputs = {**inputs, MASK: torch.cat([mask, last], 1)}
        elif mask is None and inputs.get("pixel_values") is not None:
            raise UnsupportedError(
                f"{type(self.model).__name__} was given pictures without {MASK}, which says what "
                "tokens see; pass all that its processor returns"
            )
        return super().prompt_arguments(inputs)

    def prompt_extras(self, arguments: dict[str, Any], packed: Packing) -> dict[str, Any]:
        extras = super().prompt_extras(arguments, packed)
        if arguments.get(STATES) is None:
            return extras
        masks = {name: packed(arguments[name][:, 0])[:, None] for name in (MASK, GATE)}
        return {**extras, **masks, STATES: arguments[STATES]}

    def repeat_extras(self, prompt: Prompt, copies: int) -> dict[str, Any]:
        extras = super().repeat_extras(prompt, copies)
        for name in {STATES, MASK, GATE} & prompt.extras.keys():
            by_row = prompt.extras[name].unflatten(0, (prompt.rows, -1))
            extras[name] = by_row.repeat_interleave(copies, 0).flatten(0, 1)
        return extras

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        cache = cache_of(kwargs)
        if STATES in kwargs:  # new tokens will see what the last one of each prompt does
            last = torch.tensor(cache.prompt.lengths) - 1
            rows = torch.arange(len(last))
            cache.mask, cache.gate = (kwargs[name][rows, :, last, None] for name in (MASK, GATE))
        elif cache.mask is not None:
            size = (-1, -1, embeds.shape[1], -1)
            kwargs |= {MASK: cache.mask.expand(size), GATE: cache.gate.expand(size)}
        return super().decode(embeds, positions, **kwargs)


class ReferenceCache(SlotCache):
    """Holds slots, and how many of each row its prompt has, which stay in sight.

    Attributes:
        prompt_lengths: of each row, without what it had generated before it was interrupted.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers, capacity)
        self.prompt_lengths: list[int] = []

    @contextmanager
    def prefilling(self, prompt: Prompt, chunk: int) -> Iterator[None]:
        self.prompt_lengths = [length - prompt.generated for length in prompt.lengths]
        with super().prefilling(prompt, chunk):
            yield

    def select_rows(self, rows: list[int]) -> None:
        super().select_rows(rows)
        self.prompt_lengths = [self.prompt_lengths[row] for row in rows]

    def merge(self, other: SlotCache) -> None:
        assert isinstance(other, ReferenceCache)
        super().merge(other)
        self.prompt_lengths += other.prompt_lengths

    def is_prompt(self, slots: Tensor) -> Tensor:
        """Returns which slots hold a row's prompt, `[rows, 1, 1, slots]` bool."""
        lengths = torch.tensor(self.prompt_lengths, device=slots.device)
        return slots < lengths.view(-1, 1, 1, 1)

    def prompt_mask(self, start: int, window: int, embeds: Tensor) -> Tensor:
        """Returns the additive mask of a chunk of the prompts, `[rows, 1, entries, slots]`.

        Args:
            start: tokens of the prompts in front of it.
            window: of what rows had generated before they were interrupted.
            embeds: of the chunk, `[rows, entries, hidden]`.
        """
        slots = torch.arange(start + embeds.shape[1], device=embeds.device)
        entries = slots[start:, None]
        seen = (slots <= entries) & (self.is_prompt(slots) | (slots > entries - window))
        return embeds.new_zeros(seen.shape).masked_fill_(~seen, torch.finfo(embeds.dtype).min)


class ReferenceSliding(Masked):
    """The adapter of models whose tokens see the prompt, and a window of what was generated."""

    kinds: ClassVar[frozenset[str]] = Generic.kinds | {REFERENCE}

    def open_cache(self, capacity: int) -> ReferenceCache:
        return ReferenceCache(self.layers, capacity)

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        cache: Any = cache_of(kwargs)
        masks: Any = kwargs.get("attention_mask")
        if cache.prompt is None:
            mask = masks[REFERENCE]  # [rows or 1, 1, entries, slots]
            slots = torch.arange(mask.shape[-1], device=mask.device)
            revealed = torch.where(cache.is_prompt(slots), 0, mask)
            kwargs["attention_mask"] = {**masks, REFERENCE: revealed}
        elif masks or cache.prompt.generated:  # else the model's own mask hides nothing
            start, entries = cache.longest, embeds.shape[1]
            windows = {REFERENCE: self.text_config.sliding_window}
            kwargs["attention_mask"] = {
                kind: cache.prompt_mask(start, windows.get(kind, start + entries), embeds)
                for kind in set(self.text_config.layer_types)
            }
        return super().decode(embeds, positions, **kwargs)


def adapter_type(model: Any) -> type[Generic]:
    """Returns the class of the generic adapter of a model that keeps no states.

    Raises:
        UnsupportedError: as `generic_type`.
    """
    kind, text = generic_type(model), model.config.get_text_config(decoder=True)
    if kind is not Generic:
        return kind
    if REFERENCE in (getattr(text, "layer_types", None) or ()):
        return ReferenceSliding
    return CrossAttention if getattr(text, "cross_attention_layers", None) else kind
