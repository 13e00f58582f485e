"""The sizes of an assistant, read from the config.json that is published with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers.activations import ACT2FN

from ...checks import check_whole
from ...errors import SoonerError, UnsupportedError, unknown

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


@dataclass(frozen=True)
class AssistantConfig:
    """Layers with queries alone, and the target that they belong to.

    Attributes:
        target_hidden_size: width of the target's embedding and states (`backbone_hidden_size`).
        hidden_size, intermediate_size, num_attention_heads, rms_norm_eps, hidden_activation,
            vocab_size: as of Gemma 4.
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

    target_hidden_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    layer_types: tuple[str, ...]
    head_dims: Mapping[str, int]
    ropes: Mapping[str, Mapping[str, Any]]
    vocab_size: int
    sliding_window: int = 512
    rms_norm_eps: float = 1e-6
    hidden_activation: str = "gelu_pytorch_tanh"
    num_centroids: int | None = None
    chosen_centroids: int = 32
    tie_word_embeddings: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
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


def is_assistant(raw: Mapping[str, Any]) -> bool:
    """Returns whether a config.json is of an assistant that shares keys with Gemma 4."""
    return raw.get("model_type") in TYPES


def read_config(raw: Mapping[str, Any], where: str) -> AssistantConfig:
    """Returns what a published config.json means.

    Args:
        raw: its content.
        where: its path, for errors.

    Raises:
        SoonerError: a key that is unknown or missing, or sizes that do not fit together.
        UnsupportedError: an option that is not computed here.
    """
    text = raw.get("text_config")
    if not isinstance(text, Mapping):
        raise SoonerError(f"'{where}' lacks text_config; give the config.json that was published")
    for name, part, keys in (("config", raw, FIELDS), ("text_config", text, TEXT)):
        for key in part:
            if key not in (*keys, *IDLE) and not key.endswith(("_token_id", "_token_index")):
                raise unknown(f"key in '{where}', {name}:", key, keys)
    _refuse(raw, text, where)
    try:
        return _config(raw, text)
    except KeyError as error:
        raise SoonerError(
            f"'{where}' lacks {error}; give the config.json that was published"
        ) from error


def _config(raw: Mapping[str, Any], text: Mapping[str, Any]) -> AssistantConfig:
    kinds = tuple(text.get("layer_types") or _kinds(int(text["num_hidden_layers"])))
    head_dim = int(text.get("head_dim", 256))
    dims = dict.fromkeys(kinds, head_dim)
    if FULL in dims and "per_layer_config" not in text:
        dims[FULL] = int(text.get("global_head_dim") or 512)
    for key, layer_config in (text.get("per_layer_config") or {}).items():
        kind = key if key in kinds else kinds[int(key)]
        dims[kind] = int(layer_config.get("head_dim", dims[kind]))
    has_clusters = bool(raw.get("use_ordered_embeddings"))
    return AssistantConfig(
        target_hidden_size=int(raw["backbone_hidden_size"]),
        hidden_size=int(text["hidden_size"]),
        intermediate_size=int(text["intermediate_size"]),
        num_attention_heads=int(text["num_attention_heads"]),
        layer_types=kinds,
        head_dims=dims,
        ropes={kind: _rope(text, kind) for kind in dims},
        vocab_size=int(text["vocab_size"]),
        sliding_window=int(text.get("sliding_window") or 512),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        hidden_activation=str(text.get("hidden_activation", "gelu_pytorch_tanh")),
        num_centroids=int(raw.get("num_centroids", 2048)) if has_clusters else None,
        chosen_centroids=int(raw.get("centroid_intermediate_top_k", 32)),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", True)),
    )


def _kinds(layers: int) -> list[str]:
    """Returns gemma 4's own: every sixth layer sees all, and so does the last."""
    return [FULL if (at + 1) % 6 == 0 or at == layers - 1 else SLIDING for at in range(layers)]


def _rope(text: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Returns the parameters of a kind's RoPE, Gemma 4's own if the config names none."""
    usual = {"rope_type": "default", "rope_theta": 10_000.0}
    if kind == FULL:
        usual = {
            "rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25,
        }  # fmt: skip
    return dict((text.get("rope_parameters") or {}).get(kind) or usual)


def _refuse(raw: Mapping[str, Any], text: Mapping[str, Any], where: str) -> None:
    """Refuse what would change the numbers and is not computed here."""
    kinds = sorted(set(text.get("layer_types") or ()) - {FULL, SLIDING})
    layers, shared = text.get("num_hidden_layers"), text.get("num_kv_shared_layers")
    ropes = {str(_rope(text, kind).get("rope_type")) for kind in (FULL, SLIDING)} - {*ROPES}
    named = text.get("layer_types")
    refused = {
        "quantised weights; publish them as floats": bool(raw.get("quantization_config")),
        f"{'/'.join(kinds)} layers; full_attention and sliding_attention are run": bool(kinds),
        f"{len(named or ())} layer_types for {layers} layers": named and len(named) != layers,
        f"num_kv_shared_layers {shared} of {layers} layers; all of an assistant's read the "
        "target's keys": shared not in (None, 0, layers),
        f"'{'/'.join(sorted(ropes))}' RoPE; {' and '.join(ROPES)} are run": bool(ropes),
        "inputs of each layer (hidden_size_per_layer_input)": text.get(
            "hidden_size_per_layer_input"
        ),
        "experts (enable_moe_block)": text.get("enable_moe_block"),
        "an MLP of twice the width (use_double_wide_mlp)": text.get("use_double_wide_mlp"),
        "biases of its queries (attention_bias)": text.get("attention_bias"),
        "use_bidirectional_attention 'all'": text.get("use_bidirectional_attention") == "all",
        f"hidden_activation '{text.get('hidden_activation')}'": text.get(
            "hidden_activation", "gelu_pytorch_tanh"
        )
        not in ACT2FN,
    }
    for what, is_so in refused.items():
        if is_so:
            raise UnsupportedError(f"assistant: '{where}' says {what}")
