"""What checkpoints call the tensors of their MTP layer: Qwen's `mtp.*`, GLM's layer behind all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ...io import replacing, write_json
from .specforge import CONFIG_KEY, WEIGHTS


@dataclass(frozen=True)
class Layout:
    """Holds the names of an MTP layer's tensors.

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

    def base_name(self, name: str) -> str:
        """Returns the name in `MtpHead` of a tensor, given without its prefix."""
        for published, local in self._parts:
            if name.startswith(f"{published}."):
                return local + name.removeprefix(published)
        return "layer." + name.removeprefix(self.layer)

    def their_name(self, name: str) -> str:
        """Returns the name without its prefix of a tensor of `MtpHead`."""
        for published, local in self._parts:
            if name.startswith(f"{local}."):
                return published + name.removeprefix(local)
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
    present = set(names)
    for layout in (QWEN, GLM):
        for prefix in layout.prefixes:
            prefix = prefix.format(n=layers)
            if f"{prefix}{layout.fc}.weight" in present:
                return layout, prefix
    return None


def is_mtp(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether a folder holds an MTP layer, or tensors that are called so."""
    present = set(names)
    return find_layout(config, present) is not None or any(
        name.startswith("mtp.") for name in present
    )


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
        split = [weight.unflatten(0, (head.heads, head.head_dim)) for weight in pair]
        weights[query] = torch.cat(split, 1).flatten(0, 1)
    named = {
        prefix + layout.their_name(name): value.to(dtype or value.dtype).contiguous()
        for name, value in weights.items()
    }
    with replacing(home / WEIGHTS) as part:
        save_file(named, part, metadata={"format": "pt"})
    fields = {name: getattr(config, name) for name in ("temperature", "target", "provenance")}
    write_json({**config.model.to_diff_dict(), CONFIG_KEY: fields}, home / "config.json")
