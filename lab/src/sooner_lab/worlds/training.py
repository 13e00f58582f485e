"""What the recipes of all miniatures share: the learning rate's course, the depth, the files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sooner.errors import SoonerError
from sooner.io import replacing
from sooner.models import silent


def schedule(step: int, steps: int) -> float:
    """Linear warm-up over 50 steps (a tenth, if fewer), then a cosine to 5 %."""
    warm = min(50, max(steps // 10, 1))
    if step < warm:
        return (step + 1) / warm
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


def start_of(out: Path, config: Any) -> Path | None:
    """The checkpoint folder that a recipe starts from; `None` is fresh weights."""
    return (out / config.start).resolve() if config.start else None


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
    if start is None:
        return build(
            dataclasses.replace(config.shape, layers=first_depth(config, config.shape.layers))
        )
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


def load(folder: Path | str, model: Any, processor: Any) -> tuple[Any, Any]:
    """A checkpoint's model in fp32 and evaluation mode, silent layers included, and its processor.

    Args:
        model, processor: classes of transformers.
    """
    made = model.from_pretrained(folder, dtype=torch.float32).eval()
    return silent.as_run(made, folder), processor.from_pretrained(folder)


def need(out: Path, part: str) -> Path:
    """The finished checkpoint of a part that the one trained into `out` is built on.

    Raises:
        SoonerError: it is not there.
    """
    folder = out.parent / part / "checkpoint"
    if not (folder / "config.json").exists():
        raise SoonerError(f"no trained {part} in '{folder}'; train the part '{part}' first")
    return folder


def cached(path: Path, key: Any, make: Callable[[], Tensor]) -> Tensor:
    """A tensor from `path`, if it was made for the same key; else it is made and written there."""
    if path.exists():
        saved = torch.load(path, weights_only=True)
        if saved["key"] == key:
            return saved["data"]
    data = make()
    with replacing(path) as part:
        torch.save({"key": key, "data": data}, part)
    return data


def depth_of(state: dict[str, torch.Tensor], mark: str) -> int:
    """Layers of a saved decoder, whose weights are called `mark`, their number, and the rest."""
    return len({key[len(mark) :].split(".")[0] for key in state if key.startswith(mark)})


def deepen(model: Any, layers: int, low: float = 1.0) -> None:
    """Deepen a model's decoder in place to `layers` layers without changing what it computes.

    The new layers add nothing to the residual stream until training moves them, so that most
    steps run at a fraction of the final depth's cost. Arguments as of `models.silent.spread`.

    Raises:
        ValueError: if the decoder is already deeper than `layers`.
    """
    decoder = model.get_decoder()
    silent.deepen(decoder, silent.spread(len(decoder.layers), layers, low))


def first_depth(config: Any, layers: int) -> int:
    """Layers that a recipe begins with: its first stage's that names some, or `layers`."""
    return next((stage.layers for stage in config.stages if stage.layers), layers)


def waves(side: int, width: int, highest: float = 2.0) -> Tensor:
    """2-D sines and cosines, `[side * side, 4 * (width // 4)]`: first positions of a small tower.

    HF's initial positions have a tenth of the patches' norm, and a tower needs hundreds of steps
    to use them.

    Args:
        highest: of the octaves, from -1 on.
    """
    rates = torch.pi * 2.0 ** torch.linspace(-1, highest, width // 4) / side
    angles = torch.arange(side)[:, None] * rates  # [side, quarter]
    line = torch.cat([angles.sin(), angles.cos()], dim=1)  # [side, half]
    return torch.cat([line.repeat_interleave(side, 0), line.repeat(side, 1)], dim=1)


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
    half.generation_config = getattr(model, "generation_config", None)
    half.half().save_pretrained(folder)
