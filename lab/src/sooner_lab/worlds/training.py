"""What the recipes of all miniatures share: the learning rate's course, the depth, the files."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sooner.errors import SoonerError
from sooner.io import write_json
from sooner.models import silent

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OWN, SHARED = "model-00001-of-00002.safetensors", "shared.safetensors"
"""Files of weights: all of a checkpoint; or its own, and those of several beside each other."""


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

    The new layers add nothing to the residual stream until training moves them, so that most
    steps run at a fraction of the final depth's cost. Arguments as of `models.silent.spread`.

    Raises:
        ValueError: if the model is already deeper than `layers`.
    """
    silent.deepen(text, silent.spread(len(text.layers), layers, low))


def write_depth(folder: Path, model: Any, layers: int, low: float = 1.0) -> None:
    """Note in a checkpoint's folder that its decoder runs `layers` deep, however many are trained.

    Layers that are not trained need neither a training step's time nor a place in the file.
    Arguments as of `models.silent.spread`.
    """
    silent.write_depth(folder, silent.spread(len(model.get_decoder().layers), layers, low))


def save_half(model: Any, folder: Path) -> None:
    """Write the fp16 weights and the configs of a model, which keeps its own precision."""
    half = type(model)(model.config)
    half.load_state_dict(model.state_dict())
    half.generation_config = model.generation_config
    half.half().save_pretrained(folder)


def stored_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by their names, wherever its index says that they lie."""
    index = folder / INDEX
    if not index.is_file():
        return load_file(folder / WHOLE)
    told = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    files = {name: load_file(folder / name) for name in set(told.values())}
    return {tensor: files[name][tensor] for tensor, name in told.items()}


def share_weights(folders: Sequence[Path]) -> Path:
    """Store what checkpoints beside each other have in common once, in a file beside them.

    `from_pretrained` finds it by the index of each folder.

    Args:
        folders: checkpoints of one parent folder.

    Returns:
        The file that they share.
    """
    held = [stored_weights(folder) for folder in folders]
    first, others = held[0], held[1:]
    same = {
        name: value
        for name, value in first.items()
        if all(name in one and torch.equal(one[name], value) for one in others)
    }
    common = folders[0].parent / SHARED
    save_file(same, common, metadata={"format": "pt"})
    for folder, weights in zip(folders, held, strict=True):
        own = {name: value for name, value in weights.items() if name not in same}
        if own:
            save_file(own, folder / OWN, metadata={"format": "pt"})
        else:
            (folder / OWN).unlink(missing_ok=True)
        told = {name: f"../{SHARED}" if name in same else OWN for name in sorted(weights)}
        size = sum(value.numel() * value.element_size() for value in weights.values())
        write_json({"metadata": {"total_size": size}, "weight_map": told}, folder / INDEX)
        (folder / WHOLE).unlink(missing_ok=True)
    for path in (common, *(folder / OWN for folder in folders)):
        if path.is_file():
            path.chmod(0o644)
    return common
