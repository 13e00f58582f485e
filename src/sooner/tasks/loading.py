"""Models from a hub id, a folder, or the package itself, checked before their weights are read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
)

from .. import miniatures
from ..checkpoints import checkpoint
from ..checks import check_choice
from ..errors import SoonerError, reason_of, unknown
from ..methods import StandingDraft
from ..methods.context import same_tokenizer
from ..models import FAMILIES
from ..models.model_types import (
    BUILT_HERE,
    auto_class,
    brings_code,
    check_sees,
    code_files,
    config_dict,
    is_text_only,
    model_type,
)
from ..models.openvla.adapter import OpenVLA
from ..models.silent import as_run
from .identity import model_names

logger = logging.getLogger("sooner")

MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Words for which transformers computes a `device_map`."""

FILLED = 0.9
"""Share of a device's free memory that weights may take, as transformers has it."""

DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Loaded:
    """A model that is loaded, with its processor.

    Attributes:
        name: hub id or folder, as asked for.
        model: in eval mode, on its device.
        processor: its processor; its tokenizer if it reads text only.
        is_text: it reads text only.
        separate_device: that this draft has for itself; `None`: it has none.
    """

    name: str
    model: Any
    processor: Any
    is_text: bool = False
    separate_device: str | None = None

    @cached_property
    def standing(self) -> StandingDraft | None:
        """A process that drafts with this model for all files; `None` where none can be forked."""
        if self.model.device.type != "cpu" or not hasattr(os, "fork"):
            return None
        return StandingDraft(self.model)

    @cached_property
    def spawned(self) -> StandingDraft:
        """A process that loads this draft itself, on its own device, and drafts for all files."""
        return StandingDraft(self.model, self.separate_device, spawn=True)

    @property
    def device(self) -> torch.device:
        """Where it runs: that of its weights, or, where they are a spawned process's, its own."""
        device: torch.device = self.model.device
        return torch.device(self.separate_device or device) if device.type == "meta" else device

    @property
    def tokenizer(self) -> Any:
        """Returns the processor's tokenizer, or the processor where it is one (DeepSeek-OCR)."""
        return getattr(self.processor, "tokenizer", self.processor)


@dataclass(frozen=True)
class ModelPair:
    """A target, and a draft if there is one.

    Attributes:
        prompt: the target's default prompt, if it is known.
        miniature: name of the bundled miniature, if that is what this is.
        dtype: as it was asked for.
        accepted: how often drafts were accepted so far, by how they were made.
    """

    target: Loaded
    draft: Loaded | None = None
    prompt: str | None = None
    miniature: str | None = None
    dtype: str = "auto"
    accepted: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def foreign(self, source: Path | str) -> list[str]:
        """Returns notes for a file that a miniature was not trained for; empty otherwise."""
        return miniatures.find(self.miniature).foreign(Path(source)) if self.miniature else []


def load_pair(
    model: str | None = None, draft: str | None = None, *, device: str = "auto",
    dtype: str = "auto", device_map: Any = None, draft_device: str | None = None,
    spawn_draft: bool = False, miniature: str = "video", trust_remote_code: bool = False,
    sees: bool = True,
) -> ModelPair:  # fmt: skip
    """Load a target and its draft.

    Args:
        model: hub id or folder; `None` takes the bundled miniature, by default with its draft.
        draft: hub id or folder.
        device: `auto` (CUDA if there is any), `cpu`, `cuda`, `cuda:1`, ...
        dtype: `auto` (float32 on a CPU and for miniatures, else the checkpoint's own), or a name.
        device_map: passed to transformers for the target, which it may shard; if it is `auto` or
            another such word, `draft_device` is left free.
        draft_device: where the draft runs; `None` is `device`.
        spawn_draft: a spawned process loads the draft's weights, and nobody needs them here, so
            that they are left out (see `Loaded.spawned`); what has no adapter of its own in
            `sooner.models` is loaded all the same, to be tried out.
        trust_remote_code: run the Python files of checkpoints that transformers has no class for.
        sees: the target is to look at pixels, so that one that reads text only is refused.

    Raises:
        SoonerError: an unknown model, type, device or dtype, or two different tokenizers.
    """
    where = pick_device(device)
    small = miniatures.find(miniature) if model is None else None
    kind = pick_dtype(dtype, where, is_small=small is not None)
    name, draft = model_names(model, draft, miniature)
    target_type = model_type(name, trust_remote_code)
    draft_type = None if draft is None else model_type(draft, trust_remote_code)
    if sees:
        check_sees(name, target_type, "video")
    draft_where = where if draft_device is None else pick_device(draft_device)
    separate = None if draft is None else separate_device(draft_device, device, device_map)
    memory = max_memory(device_map, separate)
    target = load(name, where, kind, device_map, trust_remote_code, memory)
    loaded = None
    if draft is not None and draft_type is not None:
        # Transformers holds the draft's class, and `sooner.models` its adapter.
        is_ours = draft_type in FAMILIES and draft_type not in BUILT_HERE
        if spawn_draft and is_ours and not brings_code(config_dict(draft)):
            separate, draft_where = str(draft_where), torch.device("meta")
        loaded = load(draft, draft_where, kind, None, trust_remote_code)
        loaded = replace(loaded, separate_device=separate)
        same_tokenizer(target.tokenizer, loaded.tokenizer)
    if small is None:
        return ModelPair(target, loaded, dtype=dtype)
    return ModelPair(target, loaded, small.prompt, small.name, dtype)


def load(
    name: str, device: torch.device, dtype: Any, device_map: Any = None,
    trust_remote_code: bool = False, memory: Mapping[int | str, int] | None = None,
) -> Loaded:  # fmt: skip
    """Load one model with its processor, attention by SDPA.

    Args:
        device: where it goes; `meta` reads no weights, for a model of one of `FAMILIES`.
        memory: bytes of each device that a `device_map` in a word may fill.
        trust_remote_code: run the Python files of a checkpoint that transformers has no class for.

    Raises:
        SoonerError: weights or processor can't be read; says which file is at fault.
    """
    kind, config = model_type(name, trust_remote_code), config_dict(name)
    if kind in BUILT_HERE:  # no class of transformers
        from ..models.openvla.checkpoint import load_policy
        from .llava_video import load_video_model

        load_here = load_policy if kind in OpenVLA.model_types else load_video_model
        with explained(name, device):
            model, processor = load_here(name, device, dtype, device_map)
            return Loaded(name, as_run(model, name), processor)
    is_text = is_text_only(kind)
    auto: Any = AutoModelForCausalLM if is_text else AutoModelForImageTextToText
    maker: Any = AutoTokenizer if is_text else AutoProcessor
    if brings_code(config):
        logger.warning("running code of the checkpoint '%s': %s", name, code_files(config))
        auto = auto_class(config)
    source = checkpoint(name)
    with explained(name, device):
        options: dict[str, Any] = {"trust_remote_code": brings_code(config), **source.options}
        processor = maker.from_pretrained(source.folder, **options)
        if source.gguf_file is not None and dtype == "auto":
            dtype = torch.float32  # its blocks are unpacked to it
        if device.type == "meta":
            adapted = AutoConfig.from_pretrained(source.folder, **source.options)
            if dtype == "auto":
                dtype = getattr(adapted, "dtype", None) or torch.float32
            with device:
                model = auto.from_config(adapted, dtype=dtype, attn_implementation="sdpa")
            with suppress(OSError):  # not every checkpoint has one
                model.generation_config = GenerationConfig.from_pretrained(source.folder)
            return Loaded(name, model.eval(), processor, is_text)
        if device_map is not None:
            options["device_map"] = device_map
        if memory is not None:
            options["max_memory"] = dict(memory)
        model = as_run(_from_pretrained(auto, source.folder, dtype=dtype, **options), name)
        if device_map is None:
            model = model.to(device)
    return Loaded(name, model.eval(), processor, is_text)


def _from_pretrained(auto: Any, name: str, **options: Any) -> Any:
    """Returns attention by SDPA; some code that a checkpoint brings knows the eager one alone."""
    try:
        return auto.from_pretrained(name, attn_implementation="sdpa", **options)
    except ValueError as error:
        if not options["trust_remote_code"] or "scaled_dot_product_attention" not in str(error):
            raise
    return auto.from_pretrained(name, attn_implementation="eager", **options)


@contextmanager
def explained(name: str, device: torch.device) -> Iterator[None]:
    """Turn errors of loading a model into a `SoonerError` of one line."""
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
        suffixes = {path.suffix for path in Path(name).glob("*")}
        is_bare = suffixes and suffixes.isdisjoint((".safetensors", ".bin", ".gguf"))
        reason = "the folder has no weights (*.safetensors)" if is_bare else reason_of(error)
        raise SoonerError(f"model '{name}' can't be loaded: {reason}") from error


def pick_device(name: str) -> torch.device:
    """Returns the torch device of `auto`, `cpu`, `cuda`, ...

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


def separate_device(draft_device: str | None, device: str, device_map: Any = None) -> str | None:
    """Returns the device that a draft has for itself; `None` where it shares the target's.

    Args:
        draft_device, device, device_map: see `load_pair`.

    Raises:
        SoonerError: not a device, or one that is not there.
    """
    if draft_device is None:
        return None
    draft, target = pick_device(draft_device), pick_device(device)
    is_shared = (draft.type, draft.index or 0) == (target.type, target.index or 0)
    return None if is_shared and device_map not in MAPS else str(draft)


def max_memory(device_map: Any, separate: str | None) -> dict[int | str, int] | None:
    """Returns bytes of each device that a target may fill, so that the draft's is left free.

    Args:
        device_map: of the target.
        separate: device that the draft has for itself; `None`: it has none.

    Returns:
        What transformers takes as `max_memory`; `None` where there is nothing to leave free: a map
        that names its devices, a draft on no CUDA device, or on the only one.
    """
    device = torch.device(separate or "cpu")
    if device.type != "cuda" or device_map not in MAPS:
        return None
    from accelerate.utils import get_max_memory

    main, free = device.index or 0, get_max_memory()
    if not any(isinstance(index, int) and index != main for index in free):
        return None
    return {index: 0 if index == main else int(FILLED * size) for index, size in free.items()}


def pick_dtype(name: str, device: torch.device, is_small: bool) -> Any:
    """Returns transformers' `dtype`: a torch dtype, or `"auto"` for the checkpoint's own.

    Raises:
        SoonerError: not one of `DTYPES`.
    """
    if name == "auto":
        return torch.float32 if is_small or device.type == "cpu" else "auto"
    check_choice("dtype", name, ("auto", *DTYPES))
    return getattr(torch, name)
