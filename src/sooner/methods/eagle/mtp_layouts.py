"""What checkpoints call the tensors of their MTP layer: Qwen's `mtp.*`, GLM's layer behind all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


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

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """Returns pairs of what a published name begins with behind the prefix, and `MtpHead`'s."""
        return ((f"{self.fc}.", "fc."), (f"{self.embed_norm}.", "embed_norm."),
                (f"{self.hidden_norm}.", "hidden_norm."), (f"{self.norm}.", "norm."),
                (self.layer, "layer."))  # fmt: skip


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
