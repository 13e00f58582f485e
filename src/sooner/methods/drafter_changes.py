"""What may be wrong with a trained drafter's files: it is loaded as it is, and with each change."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import SoonerError, UnsupportedError
from .assistant.model import AssistantModel
from .dflash.model import DFlashModel
from .draft_module import rope_parameters
from .eagle.eagle3 import IDS, Eagle3Head
from .eagle.mtp import MtpHead
from .published import CONFIG, CONFIG_KEY, WEIGHTS
from .trained import recognise

SECTIONS = ("", "eagle_config", "dflash_config", "speculative_config")
LAYER_KEYS = (IDS, "target_layer_ids", "aux_hidden_state_layer_ids")
"""Sections and keys of config.json that name the layers."""


@dataclass(frozen=True)
class Change:
    """Something that is done in another way than a drafter's files or a command say.

    Attributes:
        name: what a table calls it.
        setting: what a user would set.
        drafter: with the change.
        mode: how the target's answers are recorded: "" is as configured.
    """

    name: str
    setting: str
    drafter: Any
    mode: str = ""


def layers_of(drafter: Any, adapter: Any) -> tuple[int, ...]:
    """Returns the `hidden_states` that a drafter reads; the decoder's output is the last."""
    if isinstance(drafter, DFlashModel):
        return drafter.config.layers
    return tuple(drafter.layer_ids_for(adapter)) or (adapter.layers,)


def file_changes(name: Path | str, adapter: Any) -> list[Change]:
    """Returns a drafter as its files are, and with each change of them that can be loaded.

    Raises:
        SoonerError: files that can't be read, or of another target.
        UnsupportedError: an assistant, which reads no states of layers.
    """
    folder, config, kind = recognise(name)
    base: Any = kind.load(folder, config)
    if isinstance(base, AssistantModel):
        raise UnsupportedError(
            f"'{name}' is {kind.title}, which reads the target's cache and has no options to try; "
            "check that target and assistant are of one release"
        )
    base.check(adapter)
    base = base.placed(adapter)
    made = [Change("as configured", "", base)]
    for label, section, key, value in _config_changes(config, base, adapter):
        part = {**((config.get(section) or {}) if section else config), key: value}
        with suppress(SoonerError):  # no such layer, or a RoPE that this kind does not know
            drafter = kind.load(folder, {**config, section: part} if section else part)
            if all(0 <= layer <= adapter.layers for layer in layers_of(drafter, adapter)):
                path = f"{section}.{key}" if section else key
                setting = f"{path}: {json.dumps(value, sort_keys=True)} in {folder / CONFIG}"
                made.append(Change(label, setting, drafter))
    for label, setting, parts in _tensor_changes(base, adapter):
        drafter = copy.copy(base)
        drafter._modules, drafter._buffers = dict(base._modules), dict(base._buffers)
        for part_name, value in parts.items():
            setattr(drafter, part_name, value)
        made.append(Change(label, f"{setting} in {folder / WEIGHTS}", drafter))
    return made


def _config_changes(
    config: Mapping[str, Any], drafter: Any, adapter: Any
) -> Iterator[tuple[str, str, str, Any]]:
    """Yields changes of a config.json: a name, the section, the key and another value."""
    layers, is_eagle3 = layers_of(drafter, adapter), isinstance(drafter, Eagle3Head)
    section, key, numbers = _layer_key(config, layers)
    if is_eagle3 or isinstance(drafter, DFlashModel):
        for by in (-1, 1):
            moved = ", ".join(str(layer + by) for layer in layers)
            yield f"layers {by:+d} ({moved})", section, key, [number + by for number in numbers]
    if is_eagle3:
        flag = not drafter.config.norm_before_residual
        yield f"norm {'before' if flag else 'after'} residual", "", "norm_before_residual", flag
        flag = not drafter.sees_pixels
        name = "pixels" if flag else "placeholders, not pixels"
        yield f"drafter sees {name}", CONFIG_KEY, "sees_pixels", flag
    if isinstance(drafter, DFlashModel):
        flag = not drafter.config.from_anchor
        section = section if section == "speculative_config" else ""
        yield f"positions of blocks {-1 if flag else 1:+d}", section, "sample_from_anchor", flag
    theirs = getattr(adapter.text_config, "rope_parameters", None) or {}
    if isinstance(drafter, MtpHead) or any(isinstance(value, dict) for value in theirs.values()):
        return  # its config is the target's, or each kind of layer has its RoPE
    ropes, rope = [drafter.config.rope_parameters], rope_parameters({"rope_parameters": theirs})
    axes = {name: rope[name] for name in rope if name.startswith("mrope")}
    ropes += [{name: rope[name] for name in rope if name not in axes}]
    ropes += [{"rope_type": "default", "rope_theta": each["rope_theta"]} for each in ropes]
    section = "transformer_layer_config" if "speculators_model_type" in config else ""
    if is_eagle3 and sum(axes.get("mrope_section", ())) == drafter.head_dim // 2:
        ropes += [rope, {**ropes[0], **axes}]
    for number, each in enumerate(ropes):
        if each not in ropes[:number] and number:
            text = f"{each['rope_type']}, theta {each['rope_theta']:g}"
            text += ", the target's axes" if "mrope_section" in each else ""
            yield f"positions: RoPE {text}", section, "rope_parameters", each


def _layer_key(config: Mapping[str, Any], layers: Sequence[int]) -> tuple[str, str, list[int]]:
    """Returns the section and the key that name a drafter's layers, and the numbers there."""
    for section in SECTIONS:
        part = (config.get(section) or {}) if section else config
        for key in LAYER_KEYS:
            if part.get(key) is not None:
                return section, key, list(part[key])
    if "speculators_model_type" in config:
        return "", IDS, list(layers)
    return "eagle_config", IDS, [layer - 1 for layer in layers]


def _tensor_changes(drafter: Any, adapter: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields changes of tensors: a name, what to write, and the drafter's parts with it."""
    head, table, ids = drafter.lm_head, drafter.embed_tokens, drafter.token_ids
    fits = head is None or head.in_features == int(adapter.text_config.hidden_size)
    if ids is not None and head is not None:
        line = torch.arange(len(ids), device=ids.device)
        maps = [("holds ids", "d2t - arange(n) as d2t", ids - line), ("is off", "no d2t", line)]
        maps += [(f"{by:+d}", f"d2t {by:+d} as d2t", ids + by) for by in (-1, 1)]
        for name, setting, other in maps:
            inside = int(other.min()) >= 0 and int(other.max()) < adapter.vocab_size
            if inside and len(other.unique()) == len(ids) and not torch.equal(other, ids):
                yield f"vocabulary map {name}", f"{setting}, no t2d", {"token_ids": other}
    if head is not None and fits:
        whole: dict[str, Any] = {"lm_head": None}
        whole |= {"token_ids": None} if isinstance(drafter, DFlashModel) else {}
        yield "the target's LM head", "no lm_head.weight (d2t, t2d)", whole
    if head is not None and table is not None:
        rows = table.weight if ids is None else table.weight[ids]
        tied = nn.Linear(rows.shape[1], len(rows), bias=False, device="meta")
        tied.weight = nn.Parameter(rows.detach())
        yield "LM head tied to the embedding", "no lm_head.weight", {"lm_head": tied}
    if table is not None and table.embedding_dim == int(adapter.text_config.hidden_size):
        yield "the target's embedding", "no embed_tokens.weight", {"embed_tokens": None}
