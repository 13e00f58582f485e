"""What checkpoints call the tensors of their MTP layer: Qwen's `mtp.*`, GLM's layer behind all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...errors import SoonerError, UnsupportedError
from ...io import replacing, write_json
from .published import check_names
from .specforge import OWN, WEIGHTS


@dataclass(frozen=True)
class Layout:
    """The names of an MTP layer's tensors.

    Attributes:
        prefixes: what may stand in front of all of them; `{n}` is the target's number of layers.
        fc, embed_norm, hidden_norm, norm: of the parts around the decoder layer.
        layer: in front of the decoder layer's.
        goes_on_normed: the next token is drafted from the state behind `norm`, not before it.
        copies: of the target's embedding and LM head, which are passed over.
    """

    prefixes: tuple[str, ...]
    fc: str
    embed_norm: str
    hidden_norm: str
    norm: str
    layer: str
    goes_on_normed: bool
    copies: tuple[str, ...] = ()

    def own_name(self, name: str) -> str:
        """The name in `MtpHead` of a tensor, given without its prefix."""
        for theirs, own in self._parts:
            if name.startswith(f"{theirs}."):
                return own + name.removeprefix(theirs)
        return "layer." + name.removeprefix(self.layer)

    def their_name(self, name: str) -> str:
        """The name without its prefix of a tensor of `MtpHead`."""
        for theirs, own in self._parts:
            if name.startswith(f"{own}."):
                return theirs + name.removeprefix(own)
        return self.layer + name.removeprefix("layer.")

    @property
    def _parts(self) -> tuple[tuple[str, str], ...]:
        return ((self.fc, "fc"), (self.embed_norm, "embed_norm"),
                (self.hidden_norm, "hidden_norm"), (self.norm, "norm"))  # fmt: skip


QWEN = Layout(
    prefixes=("mtp.", "model.mtp."),
    fc="fc",
    embed_norm="pre_fc_norm_embedding",
    hidden_norm="pre_fc_norm_hidden",
    norm="norm",
    layer="layers.0.",
    goes_on_normed=True,
)
"""Qwen3.5's, as vLLM's `qwen3_5_mtp` reads it."""

GLM = Layout(
    prefixes=("model.language_model.layers.{n}.", "model.layers.{n}."),
    fc="eh_proj",
    embed_norm="enorm",
    hidden_norm="hnorm",
    norm="shared_head.norm",
    layer="",
    goes_on_normed=False,
    copies=("shared_head.head.weight", "embed_tokens.weight"),
)
"""GLM-OCR's, as vLLM's `glm_ocr_mtp` reads it: DeepSeek-V3's names."""


def find_layout(config: Mapping[str, Any], names: Iterable[str]) -> tuple[Layout, str] | None:
    """How a checkpoint holds an MTP layer, and the prefix of its tensors; `None` without one.

    Args:
        config: its config.json.
        names: of its tensors.
    """
    layers = (config.get("text_config") or config).get("num_hidden_layers")
    held = set(names)
    for layout in (QWEN, GLM):
        for prefix in layout.prefixes:
            prefix = prefix.format(n=layers)
            if f"{prefix}{layout.fc}.weight" in held:
                return layout, prefix
    return None


def is_mtp(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether a folder holds an MTP layer, or tensors that are called so."""
    held = set(names)
    return find_layout(config, held) is not None or any(one.startswith("mtp.") for one in held)


def load_mtp(folder: Path, config: Mapping[str, Any]) -> Any:
    """The MTP layer of a target's checkpoint, in eval mode, fp32; nothing else is read of it.

    Args:
        folder: of the checkpoint.
        config: its config.json.

    Raises:
        SoonerError: unknown, missing or misshapen tensors, by name.
        UnsupportedError: a family, a number of layers or a layout that isn't run.
    """
    from .mtp import MtpConfig, MtpHead

    files = _where(folder)
    found = find_layout(config, files)
    if found is None:
        first = min(name for name in files if name.startswith("mtp."))
        raise UnsupportedError(
            f"'{folder}' has tensors of an MTP layer ('{first}') in a layout that isn't known; it "
            "takes a `Layout` with its names: 'mtp.fc.weight' (Qwen) and 'eh_proj.weight' of a "
            "layer behind all others (GLM) are read"
        )
    layout, prefix = found
    own = dict(config.get(OWN) or {})
    head = MtpHead(
        MtpConfig(
            _model_config(folder, config),
            layout,
            temperature=float(own.get("temperature", 1.0)),
            target=dict(own.get("target") or {}),
            provenance=dict(own.get("provenance") or {}),
        )
    )
    mine = {name: path for name, path in files.items() if name.startswith(prefix)}
    _check_depth(folder, layout, prefix, mine, config)
    weights = {
        layout.own_name(name.removeprefix(prefix)): (name, value)
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


def save_mtp(head: Any, folder: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write an MTP layer under its published names, with the target's config.

    Args:
        folder: gets `config.json` and `model.safetensors`, each whole or not at all.
        dtype: of the file; by default the layer's own.
    """
    home, config = Path(folder), head.config
    home.mkdir(parents=True, exist_ok=True)
    layout = config.layout
    prefix = layout.prefixes[0].format(n=config.text.num_hidden_layers)
    weights = {name: value.detach().cpu() for name, value in head.state_dict().items()}
    for name in [name for name in weights if ".gate_proj." in name and "self_attn" in name]:
        query = name.replace("gate_proj", "q_proj")
        pair = [weights[query], weights.pop(name)]
        split = [one.unflatten(0, (head.heads, head.head_dim)) for one in pair]
        weights[query] = torch.cat(split, 1).flatten(0, 1)
    named = {
        prefix + layout.their_name(name): value.to(dtype or value.dtype).contiguous()
        for name, value in weights.items()
    }
    with replacing(home / WEIGHTS) as part:
        save_file(named, part, metadata={"format": "pt"})
    kept = {name: getattr(config, name) for name in ("temperature", "target", "provenance")}
    write_json({**config.model.to_diff_dict(), OWN: kept}, home / "config.json")


def _model_config(folder: Path, config: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        told = {name: value for name, value in config.items() if name not in (OWN, "model_type")}
        return AutoConfig.for_model(str(config.get("model_type")), **told)
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
    told = text.get(name, 1)
    others = [one for one in mine if one.startswith(f"{prefix}layers.1.")]
    if told not in (None, 1) or others:
        raise UnsupportedError(
            f"'{folder}' has several MTP layers ({name} {told}), each for one token ahead; one "
            "layer that goes on from its own state is run. It takes a cache for each"
        )


def _where(folder: Path) -> dict[str, Path]:
    """The file of each tensor of a checkpoint, by its index where there is one."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            told = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {name: folder / path for name, path in told.items()}
        found: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(str(path), framework="pt") as opened:
                found |= dict.fromkeys(opened.keys(), path)
        return found
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
        told, value = weights[name]
        if len(value) != 2 * head.heads * head.head_dim:
            raise SoonerError(
                f"'{told}' has {len(value)} rows, by its config.json it must have "
                f"{2 * head.heads * head.head_dim}; give files that were published together"
            )
        split = value.unflatten(0, (head.heads, 2, head.head_dim))
        for at, part in enumerate(("q_proj", "gate_proj")):
            weights[name.replace("q_proj", part)] = (told, split[:, at].flatten(0, 1))
