"""Decoders that run deeper than they are stored: their silent layers are put in on loading.

A small model is as slow as a large one, a token at a time, only if it is deep. The bundled models
are: most of their layers are *silent*, copies of the trained layer below with both output
projections (`o_proj`, `down_proj`) at zero. A silent layer adds exactly nothing to the residual
stream, costs what any layer costs, and needs not be stored. A checkpoint folder says so in
`sooner.json`:

    {"layers": {"run": 48, "trained": [0, 6, 12, 18, 24, 30, 36, 42]}}

`config.json` and the weights are those of the trained layers alone, an ordinary checkpoint:
`from_pretrained` by itself loads a model that says the same, bit for bit, in fewer layers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from ..errors import SoonerError
from .base import is_sharded

NAME = "sooner.json"
KEY = "layers"
Model = TypeVar("Model")


@dataclass(frozen=True)
class Depth:
    """Where the trained layers of a deep decoder are.

    Attributes:
        run: layers of the decoder as it runs.
        trained: places of the trained ones among these, ascending from 0.

    Raises:
        ValueError: places that are not like that.
    """

    run: int
    trained: tuple[int, ...]

    def __post_init__(self) -> None:
        places = list(self.trained)
        if not places or places[0] != 0 or places != sorted(set(places)) or places[-1] >= self.run:
            raise ValueError(
                f"trained layers are {places} of {self.run}: give ascending places from 0 to "
                f"{self.run - 1}"
            )


def deepen(text: Any, depth: Depth) -> None:
    """Put silent layers into a decoder, in place; what it computes stays the same, bit for bit.

    Args:
        text: an HF decoder of Llama's kind.
        depth: of the result; its trained layers are those that the decoder has.

    Raises:
        ValueError: the decoder has another number of layers.
    """
    old = list(text.layers)
    if len(old) != len(depth.trained):
        raise ValueError(
            f"the decoder has {len(old)} layers; {len(depth.trained)} are to be placed"
        )
    text.config.num_hidden_layers = depth.run
    if getattr(text.config, "layer_types", None) is not None:
        text.config.layer_types = ["full_attention"] * depth.run
    places = dict(zip(depth.trained, old, strict=True))
    grown: list[Any] = []
    for place in range(depth.run):
        is_trained = place in places
        grown.append(places[place] if is_trained else _silent_copy(grown[-1], text.config))
        grown[-1].self_attn.layer_idx = place  # its slot in the cache
    text.layers = torch.nn.ModuleList(grown)


def _silent_copy(layer: Any, config: Any) -> Any:
    weight = layer.self_attn.o_proj.weight
    copy = type(layer)(config, 0).to(weight.device, weight.dtype).train(layer.training)
    copy.load_state_dict(layer.state_dict())
    torch.nn.init.zeros_(copy.self_attn.o_proj.weight)
    torch.nn.init.zeros_(copy.mlp.down_proj.weight)
    return copy


def as_run(model: Model, folder: Path | str) -> Model:
    """Returns a model just loaded from `folder`, with the silent layers that the folder tells of.

    Args:
        model: what `from_pretrained` made of it; it is deepened in place. One that is split over
            devices is left as it is stored, which says the same.
        folder: the checkpoint's; a hub id has none to tell of.

    Returns:
        The model.

    Raises:
        SoonerError: `sooner.json` is broken or of other weights.
    """
    depth = read_depth(folder)
    whole: Any = model
    if depth is None or is_sharded(whole) or len({part.device for part in whole.parameters()}) > 1:
        return model
    try:
        deepen(whole.get_decoder(), depth)
    except ValueError as error:
        raise SoonerError(f"'{Path(folder) / NAME}' is not of these weights: {error}") from error
    return model


def read_depth(folder: Path | str) -> Depth | None:
    """Returns what a checkpoint's folder says about silent layers; `None` if it has none.

    Raises:
        SoonerError: it can't be understood.
    """
    path = Path(folder).expanduser() / NAME
    try:
        depth = json.loads(path.read_text(encoding="utf-8")).get(KEY) if path.is_file() else None
        return (
            None if depth is None else Depth(int(depth["run"]), tuple(map(int, depth["trained"])))
        )
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        text = " ".join(str(error).split())[:100]
        raise SoonerError(f"'{path}' can't be used: {text}; correct it or take it away") from error
