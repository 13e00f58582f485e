"""Reads the MTP layer of a checkpoint, and nothing else of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import SoonerError, UnsupportedError
from .mtp import MtpConfig, MtpHead
from .mtp_layouts import QWEN, Layout, find_layout
from .published import check_names
from .specforge import CONFIG_KEY


def load_mtp(folder: Path, config: Mapping[str, Any]) -> MtpHead:
    """The MTP layer of a target's checkpoint, in eval mode, fp32; nothing else is read of it.

    Args:
        folder: of the checkpoint.
        config: its config.json.

    Raises:
        SoonerError: unknown, missing or misshapen tensors, by name.
        UnsupportedError: a family, a number of layers or a layout that isn't run.
    """
    files = _where(folder)
    match = find_layout(config, files)
    if match is None:
        first = min(name for name in files if name.startswith("mtp."))
        raise UnsupportedError(
            f"'{folder}' has tensors of an MTP layer ('{first}') in a layout that isn't known; it "
            "takes a `Layout` with its names: 'mtp.fc.weight' (Qwen) and 'eh_proj.weight' of a "
            "layer behind all others (GLM) are read"
        )
    layout, prefix = match
    extra = dict(config.get(CONFIG_KEY) or {})
    head = MtpHead(
        MtpConfig(
            _model_config(folder, config),
            layout,
            temperature=float(extra.get("temperature", 1.0)),
            target=dict(extra.get("target") or {}),
            provenance=dict(extra.get("provenance") or {}),
        )
    )
    mine = {name: path for name, path in files.items() if name.startswith(prefix)}
    _check_depth(folder, layout, prefix, mine, config)
    weights = {
        layout.base_name(name.removeprefix(prefix)): (name, value)
        for name, value in _read(folder, mine).items()
        if name.removeprefix(prefix) not in layout.copies
    }
    if hasattr(head.attention, "gate_proj"):
        _part_gates(weights, head)
    check_names(folder, head, weights, "MTP layer")
    with torch.no_grad():
        for name, value in head.state_dict().items():
            value.copy_(weights[name][1])
    return head.eval()


def _model_config(folder: Path, config: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        fields = {
            name: value for name, value in config.items() if name not in (CONFIG_KEY, "model_type")
        }
        return AutoConfig.for_model(str(config.get("model_type")), **fields)
    except (ValueError, TypeError, KeyError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SoonerError(
            f"'{folder / 'config.json'}' is no config that transformers knows, which an MTP layer "
            f"needs: {reason}"
        ) from error


def _check_depth(
    folder: Path, layout: Layout, prefix: str, mine: Mapping[str, Path], config: Mapping[str, Any]
) -> None:
    """Refuse several MTP layers behind each other."""
    text = config.get("text_config") or config
    name = "mtp_num_hidden_layers" if layout is QWEN else "num_nextn_predict_layers"
    depth = text.get(name, 1)
    extra = [entry for entry in mine if entry.startswith(f"{prefix}layers.1.")]
    if depth not in (None, 1) or extra:
        raise UnsupportedError(
            f"'{folder}' has several MTP layers ({name} {depth}), each for one token ahead; one "
            "layer that goes on from its own state is run. It takes a cache for each"
        )


def _where(folder: Path) -> dict[str, Path]:
    """The file of each tensor of a checkpoint, by its index where there is one."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            mapping = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {name: folder / path for name, path in mapping.items()}
        files: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(str(path), framework="pt") as opened:
                files |= dict.fromkeys(opened.keys(), path)
        return files
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SoonerError(f"weights in '{folder}' can't be read: {reason}") from error


def _read(folder: Path, files: Mapping[str, Path]) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    for path in sorted(set(files.values())):
        try:
            with safe_open(str(path), framework="pt") as opened:
                made |= {name: opened.get_tensor(name) for name in files if files[name] == path}
        except (OSError, SafetensorError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise SoonerError(f"weights in '{folder}' can't be read: {reason}") from error
    return made


def _part_gates(weights: dict[str, tuple[str, Tensor]], head: Any) -> None:
    """Part a published `q_proj` into queries and gates, which lie head by head."""
    for kind in ("weight", "bias"):
        name = f"layer.self_attn.q_proj.{kind}"
        if name not in weights:
            continue
        source, value = weights[name]
        if len(value) != 2 * head.heads * head.head_dim:
            raise SoonerError(
                f"'{source}' has {len(value)} rows, by its config.json it must have "
                f"{2 * head.heads * head.head_dim}; give files that were published together"
            )
        split = value.unflatten(0, (head.heads, 2, head.head_dim))
        for at, part in enumerate(("q_proj", "gate_proj")):
            weights[name.replace("q_proj", part)] = (source, split[:, at].flatten(0, 1))
