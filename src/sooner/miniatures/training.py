"""What the recipes of all miniatures share: threads, the learning rate's course, deepening."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from sooner.errors import SoonerError


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run with `count` torch threads; `None` leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def schedule(step: int, steps: int) -> float:
    """Linear warm-up over 50 steps (a tenth, if fewer), then a cosine to 5 %."""
    warm = min(50, max(steps // 10, 1))
    if step < warm:
        return (step + 1) / warm
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


def first_model(
    config: Any, start: Path | None, build: Callable[[Any], Any], load: Callable[[Path], Any]
) -> Any:
    """The model that a recipe's first stage begins with.

    Args:
        config: the recipe, with the `shape` to end with and `stages` that may name `layers`.
        start: checkpoint folder to begin with; `None` is fresh weights.
        build: a fresh model of a shape, weights from torch's global generator.
        load: model and processor of a folder.

    Raises:
        SoonerError: there is no checkpoint in `start`, or one of another shape.
    """
    depth = next((stage.layers for stage in config.stages if stage.layers), config.shape.layers)
    if start is None:
        return build(dataclasses.replace(config.shape, layers=depth))
    if not (start / "config.json").is_file():
        raise SoonerError(f"no checkpoint at '{start}' to start from; train that first")
    begun = load(start)[0]
    depth = begun.config.text_config.num_hidden_layers
    model = build(dataclasses.replace(config.shape, layers=depth))
    try:
        model.load_state_dict(begun.state_dict())
    except RuntimeError as error:
        raise SoonerError(f"'{start}' is not of the shape {config.shape}") from error
    return model


def depth_of(state: dict[str, torch.Tensor], mark: str) -> int:
    """Layers of a saved decoder, whose weights are called `mark`, their number, and the rest."""
    return len({key[len(mark) :].split(".")[0] for key in state if key.startswith(mark)})


def deepen(text: Any, layers: int, low: float = 1.0) -> None:
    """Deepen a decoder in place to `layers` layers without changing what it computes.

    New layers are spread evenly between the old ones, each a copy of the layer below it with its
    two output projections (`o_proj`, `down_proj`) at zero: it adds nothing to the residual stream
    until training moves them. Most steps then run at a fraction of the final depth's cost.

    Args:
        text: an HF decoder of Llama's kind.
        low: share of the depth that the old layers are spread over. Below 1, what they have learnt
            is done early, as in large models, whose upper layers only settle the next word.

    Raises:
        ValueError: if the model is already deeper than `layers`.
    """
    old = list(text.layers)
    if layers < len(old):
        raise ValueError(f"cannot grow to {layers} layers: the model has {len(old)}")
    reach = max(round(low * layers), len(old))
    sources = [min(slot * len(old) // reach, len(old) - 1) for slot in range(layers)]
    grown = []
    for slot, source in enumerate(sources):
        first = slot == 0 or sources[slot - 1] != source
        grown.append(old[source] if first else _silent_copy(old[source], text.config))
    for slot, layer in enumerate(grown):
        layer.self_attn.layer_idx = slot  # its cache slot
    text.layers = torch.nn.ModuleList(grown)
    text.config.num_hidden_layers = layers
    if getattr(text.config, "layer_types", None) is not None:
        text.config.layer_types = ["full_attention"] * layers


def _silent_copy(layer: Any, config: Any) -> Any:
    copy = type(layer)(config, 0).float()
    copy.load_state_dict(layer.state_dict())
    torch.nn.init.zeros_(copy.self_attn.o_proj.weight)
    torch.nn.init.zeros_(copy.mlp.down_proj.weight)
    return copy
