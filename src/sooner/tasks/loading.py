"""Models from a hub id, a folder, or the package itself, checked before their weights are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedConfig,
)

from .. import miniatures
from ..errors import SoonerError, did_you_mean, unknown
from ..methods.checks import same_tokenizer
from ..models import FAMILIES
from ..models.openvla import OpenVLA, load_policy
from ..models.text import TextModel
from .identity import model_names

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True)
class Loaded:
    """A model with what makes its inputs.

    Attributes:
        name: hub id or folder, as asked for.
        model: in eval mode, on its device.
        processor: its processor; its tokenizer if it reads text only.
        is_text: it reads text only.
    """

    name: str
    model: Any
    processor: Any
    is_text: bool = False

    @property
    def tokenizer(self) -> Any:
        return self.processor if self.is_text else self.processor.tokenizer


@dataclass(frozen=True)
class Pair:
    """A target, and a draft if there is one.

    Attributes:
        prompt: what the target is best asked, if it is known.
        miniature: name of the bundled miniature, if that is what this is.
        dtype: as it was asked for.
        paces: step times that `registry` has measured, so that the next file needs not.
    """

    target: Loaded
    draft: Loaded | None = None
    prompt: str | None = None
    miniature: str | None = None
    dtype: str = "auto"
    paces: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)


def load_pair(
    model: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    device_map: Any = None,
    draft_device: str | None = None,
    miniature: str = "video",
) -> Pair:
    """Load a target and its draft.

    Args:
        model: hub id or folder; `None` takes the bundled miniature, with its draft unless another
            is given.
        draft: hub id or folder.
        device: `auto` (CUDA if there is any), `cpu`, `cuda`, `cuda:1`, ...
        dtype: `auto` (float32 on a CPU and for miniatures, else the checkpoint's own), or a name.
        device_map: passed to transformers for the target, which it may shard.
        draft_device: where the draft runs; `None` is `device`.

    Raises:
        SoonerError: an unknown model, type, device or dtype, or two different tokenizers.
    """
    where = pick_device(device)
    small = None
    if model is None:
        small = miniatures.find(miniature)
        if not (small.target / "config.json").is_file():
            raise SoonerError(
                f"the '{miniature}' miniature is not in this installation; run `sooner train "
                f"miniature {miniature}`, or give --model"
            )
    kind = pick_dtype(dtype, where, is_small=small is not None)
    names = model_names(model, draft, miniature)
    types = [model_type(name) for name in names if name is not None]
    if is_text_only(types[0]):
        raise SoonerError(
            f"model '{names[0]}' of type '{types[0]}' reads text only; a video needs one of "
            f"{', '.join(sorted(name for name in FAMILIES if not is_text_only(name)))}"
        )
    target = load(names[0], where, kind, device_map)
    beside = where if draft_device is None else pick_device(draft_device)
    loaded = None if names[1] is None else load(names[1], beside, kind)
    if loaded is not None:
        same_tokenizer(target.tokenizer, loaded.tokenizer)
    if small is None:
        return Pair(target, loaded, dtype=dtype)
    return Pair(target, loaded, small.prompt, small.name, dtype)


def load(name: str, device: torch.device, dtype: Any, device_map: Any = None) -> Loaded:
    """Load one model with its processor, attention by SDPA.

    Raises:
        SoonerError: weights or processor can't be read; says which file is at fault.
    """
    kind = model_type(name)
    if kind in OpenVLA.model_types:  # no class of transformers
        with explained(name, device):
            model, processor = load_policy(name, device, dtype, device_map)
        return Loaded(name, model, processor)
    is_text = is_text_only(kind)
    auto: Any = AutoModelForCausalLM if is_text else AutoModelForImageTextToText
    maker: Any = AutoTokenizer if is_text else AutoProcessor
    options = {} if device_map is None else {"device_map": device_map}
    with explained(name, device):
        processor = maker.from_pretrained(name)
        model = auto.from_pretrained(name, dtype=dtype, attn_implementation="sdpa", **options)
        if device_map is None:
            model = model.to(device)
    return Loaded(name, model.eval(), processor, is_text)


@contextmanager
def explained(name: str, device: torch.device) -> Iterator[None]:
    """Turn what goes wrong while a model is read into one line about it."""
    try:
        yield
    except SoonerError:
        raise
    except torch.OutOfMemoryError as error:
        raise SoonerError(
            f"out of memory while loading '{name}' on {device}; use --dtype bfloat16, a smaller "
            "model or --device cpu"
        ) from error
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise SoonerError(f"model '{name}' can't be loaded: {one_line(error)}") from error


def model_type(name: str) -> str:
    """The `model_type` in a model's config, which has to be one of `sooner.models.FAMILIES`.

    Raises:
        SoonerError: no such model, or a type that is not supported.
    """
    kind = told_type(name)
    if kind not in FAMILIES:
        raise SoonerError(
            f"model '{name}' is of type '{kind}', which is not supported"
            f"{did_you_mean(kind, FAMILIES)}; supported: {', '.join(sorted(FAMILIES))}"
        )
    return kind


def told_type(name: str) -> str:
    """The `model_type` in a model's config, whatever it is.

    Raises:
        SoonerError: no such model, or none that transformers could load.
    """
    if _looks_local(name) and not Path(name).is_dir():
        raise SoonerError(f"model folder '{name}' does not exist; check the path")
    try:
        config, _ = PreTrainedConfig.get_config_dict(name)
    except (OSError, ValueError) as error:
        raise SoonerError(_not_found(name)) from error
    kind = config.get("model_type")
    if kind is None:
        raise SoonerError(
            f"model '{name}' has no readable config.json with a model_type; "
            "give a transformers checkpoint"
        )
    return str(kind)


def is_text_only(kind: str) -> bool:
    return issubclass(FAMILIES[kind], TextModel)


def _looks_local(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or name.count("/") > 1


def _not_found(name: str) -> str:
    if Path(name).is_dir():
        return f"model folder '{name}' has no readable config.json; give a transformers checkpoint"
    return (
        f"model '{name}' is no folder here, and the hub gave no config for it; check the name, "
        "your connection, and your access to it (hf auth login)"
    )


def pick_device(name: str) -> torch.device:
    """The torch device of `auto`, `cpu`, `cuda`, ...

    Raises:
        SoonerError: not a device, or one that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, ("auto", "cpu", "cuda")) from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SoonerError(
            f"device '{name}' is not there: torch sees {torch.cuda.device_count()} CUDA devices; "
            "use --device cpu"
        )
    return device


def pick_dtype(name: str, device: torch.device, is_small: bool) -> Any:
    """What transformers takes as `dtype`: a torch dtype, or `"auto"` for the checkpoint's own.

    Raises:
        SoonerError: not one of `DTYPES`.
    """
    if name == "auto":
        return torch.float32 if is_small or device.type == "cpu" else "auto"
    if name not in DTYPES:
        raise unknown("dtype", name, ("auto", *DTYPES))
    return DTYPES[name]


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its type if it has none."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
