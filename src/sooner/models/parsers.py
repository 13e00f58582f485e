"""Document parsers: PaddleOCR-VL, HunyuanOCR, GLM-OCR, dots.ocr, DeepSeek-OCR, others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..engine.cache import cache_argument
from ..errors import UnsupportedError
from .base import Adapter, Packing
from .model_prefill import ModelPrefill


class Parser(Adapter):
    """The adapter that runs GOT-OCR 2.0, LightOnOCR, DeepSeek-OCR 2 and Qianfan-OCR.

    Features in place of placeholder tokens, one running position for every token, and a decoder
    that sees backwards only.
    """

    model_types = ("deepseek_ocr2", "got_ocr2", "lighton_ocr", "qianfan_ocr")


class PaddleOCRVL(Adapter):
    """The adapter that has three position axes, as in Qwen2.5-VL; it reads pictures only."""

    model_types = ("paddleocr_vl",)
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


class GlmOCR(Adapter):
    """Three position axes; a generated token has the same value on each."""

    model_types = ("glm_ocr",)
    mrope = True


class DotsOCR(Adapter):
    """The adapter that gives every token one running position, visual ones included."""

    model_types = ("dots_ocr",)

    @property
    def body(self) -> Any:
        """The published class is a Qwen2 with a tower beside it, and embeds in its own forward."""
        return self.model


PICTURES = "images_seq_mask"


class DeepSeekOCR(ModelPrefill):
    """The adapter that gives every token one running position, visual ones included.

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

    def visual_tokens(self, inputs: Mapping[str, Any]) -> Tensor:
        ids, seen = inputs["input_ids"], inputs.get(PICTURES)
        seen = torch.zeros_like(ids) if seen is None else seen.to(ids.device)
        packed = Packing.of(inputs)
        return packed(seen.bool()) & packed.inside

    def step(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        """By the forward that its own one goes on to.

        The decoder's own forward looks for pictures wherever several tokens come at once, and
        asks for ids to count them.
        """
        forward, name = self._text_forward
        outputs = forward(
            self.decoder, inputs_embeds=embeds, position_ids=positions, use_cache=True,
            **self.named(kwargs, name),
        )  # fmt: skip
        return outputs[0]

    @cached_property
    def _text_forward(self) -> tuple[Callable[..., Any], str]:
        """That forward, and its name for the cache; looked up once, not at every step."""
        forward = _textual(type(self.decoder)).forward
        return forward, cache_argument(forward)


def _textual(kind: type) -> Any:
    """Returns the nearest class above whose forward takes no pictures."""
    for parent in kind.__mro__:
        forward = parent.__dict__.get("forward")
        if forward is not None and "images" not in inspect.signature(forward).parameters:
            return parent
    raise UnsupportedError(f"{kind.__name__} has no forward without pictures below its own")
