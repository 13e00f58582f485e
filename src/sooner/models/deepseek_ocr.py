"""DeepSeek-OCR: a mixture of experts that embeds its pictures inside its decoder.

The code comes with the checkpoint: `DeepseekOCRForCausalLM(images=, images_seq_mask=,
images_spatial_crop=)` over a DeepSeek-V2 decoder with 1-D RoPE.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .own_prefill import OwnPrefill
from .packing import Packing

PICTURES = "images_seq_mask"


class DeepSeekOCR(OwnPrefill):
    """One running position for every token, visual ones included.

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
        parent = _textual(type(self.decoder))
        outputs = parent.forward(
            self.decoder, inputs_embeds=embeds, position_ids=positions, use_cache=True, **kwargs
        )
        return outputs[0]


def _textual(kind: type) -> Any:
    """The nearest class above whose forward takes no pictures."""
    for parent in kind.__mro__:
        forward = parent.__dict__.get("forward")
        if forward is not None and "images" not in inspect.signature(forward).parameters:
            return parent
    raise UnsupportedError(f"{kind.__name__} has no forward without pictures below its own")
