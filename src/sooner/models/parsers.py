"""Document parsers: PaddleOCR-VL, HunyuanOCR, GLM-OCR, dots.ocr, DeepSeek-OCR, others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ..engine.cache import SlotCache
from ..engine.interface import CACHE_NAMES, Prompt, cache_argument, cache_of
from ..errors import UnsupportedError
from .base import Adapter, Packing, decoder_arguments


class AxesParser(Adapter):
    """The adapter of GLM-OCR and PaddleOCR-VL, which have three position axes, as in Qwen2.5-VL."""

    model_types = ("glm_ocr", "paddleocr_vl")
    mrope = True


class HunYuanVL(Adapter):
    """The adapter whose axes are width, height and number of the picture, and before them, with
    four axes, the place.

    Positions of a picture start at 0 on those axes, so that they lie far behind the text's; the
    text goes on as if every visual token had taken one place.
    """

    model_types = ("hunyuan_vl",)
    mrope = True

    @property
    def axes(self) -> int:
        return len((self.text_config.rope_parameters or {}).get("mrope_section") or ()) or 1


class DotsOCR(Adapter):
    """The adapter that gives every token one running position, visual ones included."""

    model_types = ("dots_ocr",)

    @property
    def body(self) -> Any:
        """The published class is a Qwen2 with a tower beside it, and embeds in its own forward."""
        return self.model


PICTURES = "images_seq_mask"

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


class DeepSeekOCR(Adapter):
    """One running position; the decoder embeds pictures itself, so the prefill is its own forward.

    Keys and values of the prompt are taken from the model's own cache. Prompts are not there as
    embeddings with features in place, so they can neither be pruned nor prefilled in chunks.

    Raises:
        UnsupportedError: the model has the name, but takes no `images_seq_mask` (DeepSeek-VL2).
    """

    model_types = ("DeepseekOCR", "deepseek_vl_v2")

    def __init__(self, model: Any) -> None:
        if PICTURES not in inspect.signature(model.forward).parameters:
            raise UnsupportedError(
                f"{type(model).__name__} takes no {PICTURES}, so it is no DeepSeek-OCR; decode it "
                "with its own generate()"
            )
        super().__init__(model)

    def is_visual(self, inputs: Mapping[str, Any]) -> Tensor:
        ids, visual = inputs["input_ids"], inputs.get(PICTURES)
        return (torch.zeros_like(ids) if visual is None else visual.to(ids.device)).bool()

    @property
    def body(self) -> Any:
        return self.model

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns embeddings of the tokens alone, and what the prefill takes instead of them."""
        places = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)  # as `generate` has them
        embeds = self.embedding(inputs["input_ids"])
        return {"inputs_embeds": embeds, EXTRA: {**inputs, "position_ids": places}}

    def prompt_extras(self, arguments: dict[str, Any], packed: Packing) -> dict[str, Any]:
        return {EXTRA: PrefillInputs(arguments[EXTRA], packed)}

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

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        """By the forward that the decoder's own one goes on to, behind a prompt.

        The decoder's own forward looks for pictures in several tokens at once, and asks for ids.
        """
        inputs = kwargs.pop(EXTRA, None)
        if inputs is not None:
            return self._prefill(inputs, cache_of(kwargs))
        forward, name = self._text_forward
        outputs = forward(
            self.decoder, inputs_embeds=embeds, position_ids=positions, use_cache=True,
            **self.named(kwargs, name),
        )  # fmt: skip
        return outputs[0]

    @cached_property
    def _text_forward(self) -> tuple[Callable[..., Any], str]:
        """The nearest forward above the decoder's that takes no pictures, and its name for the
        cache; looked up once, not at every step."""
        kind = type(self.decoder)
        for parent in kind.__mro__:
            forward = parent.__dict__.get("forward")
            if forward is not None and "images" not in inspect.signature(forward).parameters:
                return forward, cache_argument(forward)
        raise UnsupportedError(f"{kind.__name__} has no forward without pictures below its own")


def _packed_heads(states: Tensor, inputs: PrefillInputs) -> Tensor:
    """`[prompts, heads, padded, dim]` to `[rows, heads, width, dim]`."""
    packed = inputs.packed(states.transpose(1, 2)).transpose(1, 2)
    return packed.repeat_interleave(inputs.copies, 0)
