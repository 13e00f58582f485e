"""Features of a long video, encoded some frames at a time: neither pixels nor the tower's states of
all frames are in memory together. `memory_of` and `prefill_seconds` foretell what comes behind."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...models import Adapter
from .media import class_of

ENCODED = "mm_encoder_outputs"
"""The argument by which models take features in the place of pixels, where their transformers has
it: by kind of media what `get_..._features` returned."""

FRAMES = 16
"""Frames of a batch, a multiple of what any family's tower looks at together."""


def takes_batches(adapter: Adapter) -> bool:
    """Returns whether frames can be encoded apart, and the model takes features. LLaVA-Video puts
    newlines between frames, and encodes a few at a time itself."""
    parameters = inspect.signature(adapter.body.forward).parameters
    has_newlines = hasattr(adapter.config, "mm_newline_position")
    return adapter.frame_kind is not None and ENCODED in parameters and not has_newlines


class VisionBatches:
    """Encodes a video batch by batch, with a model for which `takes_batches` holds.

    Args:
        adapter: of the model that will read the features.
        tokens: that stand for the whole video in the prompt.
    """

    def __init__(self, adapter: Adapter, tokens: int) -> None:
        self.adapter, self.tokens, self.done = adapter, tokens, 0
        self._features: list[Tensor] = []  # pooled, and of each DeepStack layer, [tokens, hidden]
        self._form: tuple[type, int] = (dict, 0)  # class of output; tokens of a row of a tensor

    def encode(self, pixels: Mapping[str, Any]) -> list[Tensor]:
        """Returns features of frames, of which the model's processor has made `pixels`: pooled
        ones, and those of each DeepStack layer, each `[tokens, hidden]`."""
        encode = getattr(self.adapter.body, f"get_{self.adapter.frame_kind}_features")
        with torch.inference_mode():
            output = encode(**pixels, return_dict=True)
            parts = [output.pooler_output, *(getattr(output, "deepstack_features", None) or [])]
            row = 0
            if isinstance(parts[0], Tensor):  # [frames, tokens, hidden], or [1, tokens, hidden]
                row = parts[0].shape[1] if self.adapter.frame_kind == "image" else self.tokens
            self._form = class_of(output), row
            return [torch.cat(tuple(part)) for part in parts]

    def add(self, pixels: Mapping[str, Any]) -> None:
        """Encode the next frames."""
        parts = self.encode(pixels)
        if not self._features:
            self._features = [part.new_empty(self.tokens, part.shape[1]) for part in parts]
        for store, part in zip(self._features, parts, strict=True):
            store[self.done : self.done + len(part)] = part
        # What ends a video stands behind each batch, and the next one is written over it.
        self.done += len(parts[0]) - self.adapter.frames_end

    def outputs(self) -> dict[str, Any]:
        """Returns the value of `ENCODED`, once all frames are encoded."""
        (form, row), (pooled, *deep) = self._form, self._features
        more = {"deepstack_features": [(part,) for part in deep]} if deep else {}
        made = form(pooler_output=pooled.unflatten(0, (-1, row)) if row else (pooled,), **more)
        return {str(self.adapter.frame_kind): made}


def memory_of(
    adapter: Adapter, tokens: int, visual: int, new: int, batch: int, chunk: int | None,
    is_whole: bool,
) -> dict[str, int]:  # fmt: skip
    """Returns bytes by part: `weights` and `cache` exactly, others as bounds of what is in memory
    at once.

    Args:
        tokens: of the prompt, of which `visual` stand for frames.
        new: tokens behind the prompt.
        batch: processed numbers of a batch of frames.
        chunk: tokens that are prefilled at once; `None` is all of them.
        is_whole: chunks are those of MLPs alone.
    """
    text, vision, size = adapter.text_config, adapter.config.vision_config, adapter.dtype.itemsize
    deep = len(getattr(vision, "deepstack_visual_indexes", None) or ())
    width = getattr(vision, "hidden_size", None) or vision.embed_dim
    inner = getattr(vision, "intermediate_size", None) or 4 * width
    patches = batch // (3 * getattr(vision, "temporal_patch_size", 1) * vision.patch_size**2)
    # Some models keep the states of all layers of their tower, to choose one.
    layers = vision.num_hidden_layers if hasattr(adapter.config, "vision_feature_layer") else 0
    piece = min(chunk or tokens, tokens)
    mask = 0 if adapter.takes_blocks else piece * tokens
    states = 10 * text.hidden_size * (tokens if is_whole else piece)
    return {
        "weights": sum(part.nbytes for part in adapter.model.parameters()),
        "cache": adapter.slot_bytes * (tokens + new),
        "embeddings": size * text.hidden_size * (3 * tokens + (1 + deep) * visual),
        "vision": 8 * batch + size * patches * ((6 + layers) * width + 2 * inner),
        "prefill": size * (states + mask + 3 * text.intermediate_size * piece),
    }


@torch.inference_mode()
def seconds_of(call: Callable[[], Any], device: torch.device) -> float:
    """Returns the seconds of a call, the second of two."""
    times = []
    for _ in range(3):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter())
        if len(times) < 3:
            call()
    return times[2] - times[1]


def prefill_seconds(adapter: Adapter, tokens: int) -> float:
    """Returns about how long a dense prefill takes, from one of few tokens: matrices in proportion
    to tokens, attention to their square, both at the speed of these few."""
    text, size = adapter.text_config, min(tokens, 512 if adapter.device.type == "cuda" else 64)
    embeds = torch.zeros(1, size, text.hidden_size, dtype=adapter.dtype, device=adapter.device)
    positions = torch.arange(size, device=adapter.device)[None]
    positions = positions.expand(adapter.axes, -1, -1) if adapter.mrope else positions
    took = seconds_of(lambda: adapter.decode(embeds, positions), adapter.device)
    weights = sum(part.numel() for part in adapter.decoder.layers.parameters())
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    attention = adapter.layers * text.num_attention_heads * width * tokens  # beside 1 a weight
    return float(took * tokens / size * (1 + attention / weights))
