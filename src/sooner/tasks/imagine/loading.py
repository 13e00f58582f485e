"""Models that draw: from a hub id, a folder, or the package itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from transformers import (
    AutoProcessor,
    ChameleonForConditionalGeneration,
    Emu3ForConditionalGeneration,
    JanusForConditionalGeneration,
)

from ... import miniatures
from ...errors import SoonerError, did_you_mean, unknown
from ...methods.threads import Threads
from ...models.cosmos_ar import CosmosARForCausalLM, load_published
from ...models.silent import as_run
from ..loading import explained, pick_device, pick_dtype, told_type
from .chameleon import chameleon_options, find_chameleon, load_chameleon, load_processor
from .easel import Easel, Kind
from .lens import find_tokenizer, load_lens

PAINTERS: dict[str, Any] = {
    "chameleon": ChameleonForConditionalGeneration,
    "emu3": Emu3ForConditionalGeneration,
    "janus": JanusForConditionalGeneration,
}
CONTINUES = "cosmos_ar"
MINIATURES = {"image": "image", "video": "motion"}


class Asked(NamedTuple):
    """How and with what a model is to be loaded; see `load_easel`."""

    device: torch.device
    dtype: Any
    tokenizer: str | None
    layout: str | None
    trust: bool


def load_easel(
    model: str | None = None,
    kind: Kind = "image",
    *,
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    tokenizer: str | None = None,
    layout: str | None = None,
    trust: bool = False,
) -> Easel:
    """Load a model that draws.

    Args:
        model: hub id or folder; `None` takes the bundled miniature of the kind.
        kind: `"image"` for pictures from prompts, `"video"` to continue clips.
        device: `auto` (CUDA if there is any), `cpu`, `cuda`, `cuda:1`, ...
        dtype: `auto` (float32 on a CPU and for miniatures, else the checkpoint's own), or a name.
        threads: torch threads of this process, see `sooner.methods.threads.Threads`.
        tokenizer: folder of a video model's tokenizer, where it is not in or beside the model's;
            for Chameleon, what makes pixels of its codes (`vqgan.ckpt`, `movqgan_270M.ckpt`).
        layout: how a Chameleon spells pictures, see `ChameleonCanvas`.
        trust: run the code in a tokenizer's TorchScript files.

    Raises:
        SoonerError: an unknown model, type, device or dtype; says what can be had.
    """
    if kind not in get_args(Kind):
        raise unknown("kind", kind, get_args(Kind))
    planned = Threads.plan(threads, is_miniature=model is None)
    where = pick_device(device)
    kept = pick_dtype(dtype, where, is_small=model is None)
    folder = name = find_model(model, kind)
    if model is None:
        small = _bundled(MINIATURES[kind])
        name = f"miniature {small.name}"
        tokenizer = tokenizer or (str(small.tokenizer) if small.tokenizer else None)
    planned.apply()
    load = _load_painter if kind == "image" else _load_camera
    made = load(folder, Asked(where, kept, tokenizer, layout, trust))
    return Easel(
        name, kind, **made, dtype=dtype, device=where, miniature=model is None, folder=folder
    )


def find_model(model: str | None, kind: Kind) -> str:
    """Hub id or folder of a model; without one, the bundled miniature's."""
    return str(miniatures.find(MINIATURES[kind]).target) if model is None else model


def _bundled(name: str) -> miniatures.Miniature:
    small = miniatures.find(name)
    needed = [small.target, *([small.tokenizer] if small.tokenizer else [])]
    if not all((folder / "config.json").is_file() for folder in needed):
        raise SoonerError(
            f"the '{name}' miniature is not in this installation; run `sooner train miniature "
            f"{name}`, or give --model"
        )
    return small


def _load_painter(folder: str, asked: Asked) -> dict[str, Any]:
    kind = told_type(folder)
    if kind not in PAINTERS:
        hint = "; continue clips with it (--continue)" if kind == CONTINUES else ""
        raise SoonerError(
            f"model '{folder}' is of type '{kind}', which draws no pictures from prompts"
            f"{did_you_mean(kind, PAINTERS)}{hint}; supported: {', '.join(sorted(PAINTERS))}"
        )
    options: dict[str, Any] = {}
    with explained(folder, asked.device):
        model: Any
        if kind == "chameleon":
            options = chameleon_options(
                folder, asked.device, asked.tokenizer, asked.layout, asked.trust
            )
            folder = find_chameleon(folder, asked.layout)
            model = load_chameleon(folder, asked.dtype, asked.layout)
            processor = load_processor(folder)
        else:
            model = PAINTERS[kind].from_pretrained(
                folder, dtype=asked.dtype, attn_implementation="sdpa"
            )
            processor = AutoProcessor.from_pretrained(folder)
        model = as_run(model, folder).to(asked.device).eval()
    return {"model": model, "processor": processor, "options": options}


def _load_camera(folder: str, asked: Asked) -> dict[str, Any]:
    dtype = asked.dtype
    with explained(folder, asked.device):
        model: Any
        if _is_published(Path(folder)):
            model = load_published(folder, None if dtype == "auto" else dtype)
        else:
            kind = told_type(folder)
            if kind != CONTINUES:
                raise SoonerError(
                    f"model '{folder}' is of type '{kind}', which continues no clips; supported: "
                    f"{CONTINUES} (a folder as published, or saved by transformers)"
                )
            model = CosmosARForCausalLM.from_pretrained(folder, dtype=dtype)
        model = model.to(asked.device).eval()
        place = find_tokenizer(Path(folder), asked.tokenizer)
        return {"model": model, "lens": load_lens(model, place, asked.device, asked.trust)}


def _is_published(folder: Path) -> bool:
    """Weights under NVIDIA's names, whose config has no model type of transformers."""
    if (folder / "model.pt").is_file():
        return True
    if not (folder / "model.safetensors").is_file():
        return False
    config = folder / "config.json"
    return not config.is_file() or "model_type" not in _json(config)


def _json(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
    except ValueError as error:
        raise SoonerError(f"'{path}' is not JSON ({error}); fetch it again") from error
    return told if isinstance(told, dict) else {}
