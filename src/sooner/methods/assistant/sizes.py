"""The sizes of an assistant, read from the config.json that is published with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from transformers.activations import ACT2FN

from ...checks import check_whole
from ...errors import SoonerError, unknown
from ..draft_module import DraftConfig, refuse
from ..published import needed

TYPES = ("gemma4_assistant", "gemma4_unified_assistant")
FULL, SLIDING = "full_attention", "sliding_attention"
ROPES = ("default", "proportional")

FIELDS = (
    "backbone_hidden_size", "centroid_intermediate_top_k", "num_centroids", "text_config",
    "tie_word_embeddings", "use_ordered_embeddings",
)  # fmt: skip
TEXT = (
    "attention_bias", "attention_k_eq_v", "enable_moe_block", "final_logit_softcapping",
    "global_head_dim", "head_dim", "hidden_activation", "hidden_size",
    "hidden_size_per_layer_input", "intermediate_size", "layer_types", "max_position_embeddings",
    "moe_intermediate_size", "num_attention_heads", "num_experts", "num_global_key_value_heads",
    "num_hidden_layers", "num_key_value_heads", "num_kv_shared_layers", "per_layer_config",
    "rms_norm_eps", "rope_parameters", "sliding_window", "sliding_window_pattern",
    "tie_word_embeddings", "top_k_experts", "use_bidirectional_attention", "use_double_wide_mlp",
    "vocab_size", "vocab_size_per_layer_input",
)  # fmt: skip
IDLE = (
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "block_size",
    "chunk_size_feed_forward", "dtype", "id2label", "initializer_range", "is_encoder_decoder",
    "label2id", "model_type", "output_attentions", "output_hidden_states", "problem_type",
    "quantization_config", "return_dict", "torch_dtype", "transformers_version", "use_cache",
)  # fmt: skip
"""Keys that no number depends on (or that are refused below); ids of tokens are others."""


USUAL = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
}
"""RoPE of Gemma 4's layers, by kind."""


@dataclass(frozen=True, kw_only=True)
class AssistantConfig(DraftConfig):
    """Layers with queries alone, and the target that they belong to.

    Attributes:
        hidden_activation: as of Gemma 4.
        layer_types: of each layer, `full_attention` or `sliding_attention`. A layer reads the keys
            and values of the target's last layer of its kind that has some of its own.
        head_dims: of a query, by kind.
        ropes: `rope_parameters` by kind.
        sliding_window: of the layers that slide. They see the last token that the target has
            keys of and so many before it, one more than the target's own layers see: as
            transformers masks them.
        num_centroids: clusters that the vocabulary is in; `None` is an LM head over all of it.
        chosen_centroids: whose tokens are scored.
    """

    vocab_size: int
    target_hidden_size: int
    layer_types: tuple[str, ...]
    head_dims: dict[str, int]
    ropes: dict[str, dict[str, Any]]
    sliding_window: int = 512
    hidden_activation: str = "gelu_pytorch_tanh"
    num_centroids: int | None = None
    chosen_centroids: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("assistant: backbone_hidden_size", self.target_hidden_size, 1)
        check_whole("assistant: sliding_window", self.sliding_window, 1)
        if self.num_centroids is None:
            return
        check_whole("assistant: num_centroids", self.num_centroids, 1)
        check_whole("assistant: centroid_intermediate_top_k", self.chosen_centroids, 1)
        if self.vocab_size % self.num_centroids or self.chosen_centroids > self.num_centroids:
            raise SoonerError(
                f"assistant: {self.num_centroids} num_centroids and {self.chosen_centroids} "
                f"centroid_intermediate_top_k do not fit a vocabulary of {self.vocab_size}; as "
                "many tokens belong to each, and no more can be chosen than there are"
            )

    @classmethod
    def of_layout(cls, raw: Mapping[str, Any], where: Path | str) -> Self:
        """Returns what a published config.json means.

        Raises:
            SoonerError: a key that is unknown or missing, or sizes that do not fit together.
            UnsupportedError: an option that is not computed here.
        """
        text = raw.get("text_config")
        if not isinstance(text, Mapping):
            raise SoonerError(
                f"'{where}' lacks text_config; give the config.json that was published"
            )
        for name, part, keys in (("config", raw, FIELDS), ("text_config", text, TEXT)):
            for key in part:
                if key not in (*keys, *IDLE) and not key.endswith(("_token_id", "_token_index")):
                    raise unknown(f"key in '{where}', {name}:", key, keys)
        types, named = needed(text, "layer_types", where), text.get("rope_parameters") or {}
        ropes = {kind: dict(named.get(kind) or usual) for kind, usual in USUAL.items()}
        _refuse(raw, text, types, ropes)
        dims = dict.fromkeys(types, int(text.get("head_dim", 256)))
        if FULL in dims and "per_layer_config" not in text:
            dims[FULL] = int(text.get("global_head_dim") or 512)
        for key, layer in (text.get("per_layer_config") or {}).items():
            kind = key if key in types else types[int(key)]
            dims[kind] = int(layer.get("head_dim", dims[kind]))
        has_clusters = bool(raw.get("use_ordered_embeddings"))
        fields = {
            **text,
            "rope_parameters": None,
            "vocab_size": needed(text, "vocab_size", where),
            "target_hidden_size": needed(raw, "backbone_hidden_size", where),
            "layer_types": types,
            "head_dims": dims,
            "ropes": {kind: ropes[kind] for kind in dims},
            "num_centroids": raw.get("num_centroids", 2048) if has_clusters else None,
            "chosen_centroids": raw.get("centroid_intermediate_top_k"),
        }
        return cls.read(fields, where)


def _refuse(
    raw: Mapping[str, Any],
    text: Mapping[str, Any],
    types: Sequence[str],
    ropes: Mapping[str, Mapping[str, Any]],
) -> None:
    """Refuse what would change the numbers and is not computed here."""
    kinds = sorted(set(types) - set(USUAL))
    layers, shared = text.get("num_hidden_layers"), text.get("num_kv_shared_layers")
    angles = sorted({str(rope.get("rope_type")) for rope in ropes.values()} - {*ROPES})
    activation = text.get("hidden_activation", "gelu_pytorch_tanh")
    refuse("assistant", {
        "quantised weights; publish them as floats": raw.get("quantization_config"),
        f"{'/'.join(kinds)} layers; full_attention and sliding_attention are run": kinds,
        f"{len(types)} layer_types for {layers} layers": len(types) != layers,
        f"num_kv_shared_layers {shared} of {layers} layers; all of an assistant's read the "
        "target's keys": shared not in (None, 0, layers),
        f"'{'/'.join(angles)}' RoPE; {' and '.join(ROPES)} are run": angles,
        "inputs of each layer (hidden_size_per_layer_input)":
            text.get("hidden_size_per_layer_input"),
        "experts (enable_moe_block)": text.get("enable_moe_block"),
        "an MLP of twice the width (use_double_wide_mlp)": text.get("use_double_wide_mlp"),
        "biases of its queries (attention_bias)": text.get("attention_bias"),
        "use_bidirectional_attention 'all'": text.get("use_bidirectional_attention") == "all",
        f"hidden_activation '{activation}'": activation not in ACT2FN,
    })  # fmt: skip
