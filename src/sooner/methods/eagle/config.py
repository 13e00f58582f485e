"""The sizes of a draft head, the target it was trained for, and how it came about."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from transformers import LlamaConfig

from ...checks import check_number
from ...errors import SoonerError, unknown
from ...io import write_json

FILE, KIND = "config.json", "eagle_head"


@dataclass(frozen=True)
class EagleConfig:
    """Holds one Llama layer of a target's width.

    Attributes:
        hidden_size: width of the target's states and embeddings.
        intermediate_size: width of the layer's MLP.
        num_attention_heads, num_key_value_heads, head_dim: of its attention.
        rms_norm_eps: of the norm before the MLP.
        rope_theta: base of its positions, which count the tokens of a row.
        temperature: of its confidences under greedy decoding, fitted on held-out samples.
        target: fingerprint of the target (`target_print`); empty for a head of no target.
        provenance: how it was trained.

    Raises:
        SoonerError: sizes that do not fit together.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    temperature: float = 1.0
    target: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise SoonerError(
                f"EagleConfig: num_attention_heads is {self.num_attention_heads}; it must be a "
                f"multiple of num_key_value_heads, {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise SoonerError(
                f"EagleConfig: head_dim is {self.head_dim}; rotary positions need an even one"
            )
        check_number("EagleConfig: temperature", self.temperature, 0, above=True)

    def llama(self) -> LlamaConfig:
        """Returns the same sizes as transformers' Llama takes them."""
        return LlamaConfig(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            rms_norm_eps=self.rms_norm_eps,
            num_hidden_layers=1,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
        )

    @staticmethod
    def like(text_config: Any, target: dict[str, Any]) -> EagleConfig:
        """Returns a layer of the same shape as those of a target.

        Args:
            text_config: the target's, in transformers' names.
            target: its fingerprint.
        """
        heads = int(text_config.num_attention_heads)
        hidden = int(text_config.hidden_size)
        rope = getattr(text_config, "rope_parameters", None) or {}
        return EagleConfig(
            hidden_size=hidden,
            intermediate_size=int(text_config.intermediate_size),
            num_attention_heads=heads,
            num_key_value_heads=int(getattr(text_config, "num_key_value_heads", None) or heads),
            head_dim=int(getattr(text_config, "head_dim", None) or hidden // heads),
            rms_norm_eps=float(getattr(text_config, "rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or 10_000.0),
            target=target,
        )

    def save(self, folder: Path) -> None:
        """Write `config.json`."""
        write_json({"model_type": KIND, **asdict(self)}, folder / FILE)

    @staticmethod
    def load(folder: Path) -> EagleConfig:
        """Read `config.json`.

        Raises:
            SoonerError: no such file, or not that of a head; an unknown or missing key.
        """
        path = folder / FILE
        try:
            raw = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise SoonerError(
                f"draft head '{folder}' has no readable {FILE}; give a folder that `sooner train "
                "draft` wrote"
            ) from error
        kind = raw.pop("model_type", None) if isinstance(raw, dict) else None
        if kind != KIND:
            raise SoonerError(
                f"'{path}' is of model_type {kind!r}, a draft head is of '{KIND}'; give a folder "
                "that `sooner train draft` wrote"
            )
        return _checked(raw, path)


def _checked(raw: dict[str, Any], path: Path) -> EagleConfig:
    known = [item.name for item in fields(EagleConfig)]
    for name in raw:
        if name not in known:
            raise unknown(f"key of '{path}'", name, known)
    try:
        return EagleConfig(**raw)
    except TypeError as error:
        lacking = [name for name in known[:5] if name not in raw]
        raise SoonerError(f"'{path}' lacks {', '.join(lacking)}; train the head anew") from error
