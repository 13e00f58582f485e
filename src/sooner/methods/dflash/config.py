"""The sizes of a DFlash drafter, read from the configs that people publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import Qwen3Config

from ...checks import check_number, check_whole
from ...errors import SoonerError, UnsupportedError, unknown
from ..published import CONFIG, CONFIG_KEY, layer_sizes, needed, read_config

ARCHITECTURE = "DFlashDraftModel"
SLIDING = "sliding_attention"

QWEN3 = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "attention_bias", "hidden_act",
    "max_position_embeddings",
)  # fmt: skip
"""Fields that are called as in transformers' config of Qwen3."""

OPTIONS = (
    "block_size", "mask_token_id", "target_layer_ids", "input_embedding_scale",
    "output_multiplier", "final_logit_softcapping",
)  # fmt: skip
"""Keys of `dflash_config`; each may stand at the top level, too."""


@dataclass(frozen=True)
class DFlashConfig:
    """A stack of Qwen3 layers, and how a block of it is drafted (Chen et al. 2026).

    Attributes:
        hidden_size: width of the drafter and of the target's embedding.
        intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
            rms_norm_eps, rope_parameters, attention_bias, hidden_act: as of Qwen3.
        block_size: entries of a block, the anchor (the last committed token) included.
        mask_token_id: what stands in a block for a token that is to be drafted.
        layers: states of the target that are read, numbered as `target_layers` does.
        target_hidden_size: width of those states.
        windows: sliding window of each layer, or `None` for all that lies before.
        causal: layers whose block entries see only those before them.
        from_anchor: the anchor's own entry drafts, too, and each entry the token *behind* it.
        draft_vocab_size: rows of the drafter's own head; `None` is the target's head.
        vocab_size: of the target; `None` where the config does not tell.
        input_embedding_scale, output_multiplier, final_logit_softcapping: of embeddings and logits.
        provenance: how `sooner train draft` trained it, and for which target; empty for others.

    Raises:
        SoonerError: sizes that do not fit together.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    block_size: int
    mask_token_id: int
    layers: tuple[int, ...]
    rms_norm_eps: float = 1e-6
    rope_parameters: Mapping[str, Any] | None = None
    attention_bias: bool = False
    hidden_act: str = "silu"
    max_position_embeddings: int = 40_960
    target_hidden_size: int | None = None
    windows: tuple[int | None, ...] = ()
    causal: tuple[bool, ...] = ()
    from_anchor: bool = False
    draft_vocab_size: int | None = None
    vocab_size: int | None = None
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole("DFlash: block_size", self.block_size, 2)
        check_whole("DFlash: mask_token_id", self.mask_token_id, 0)
        check_number("DFlash: output_multiplier", self.output_multiplier, 0, above=True)
        check_number("DFlash: input_embedding_scale", self.input_embedding_scale, 0, above=True)
        if not self.layers:
            raise SoonerError("DFlash: target_layer_ids is empty; name at least one layer")
        if self.num_attention_heads % self.num_key_value_heads:
            raise SoonerError(
                f"DFlash: num_attention_heads is {self.num_attention_heads}; it must be a "
                f"multiple of num_key_value_heads, {self.num_key_value_heads}"
            )
        for name in ("windows", "causal"):
            value = getattr(self, name) or (None if name == "windows" else False,)
            if len(value) not in (1, self.num_hidden_layers):
                raise SoonerError(
                    f"DFlash: {len(value)} layer_types for {self.num_hidden_layers} layers; name "
                    "one for each"
                )
            whole = tuple(value) * (self.num_hidden_layers if len(value) == 1 else 1)
            object.__setattr__(self, name, whole)
        for window in self.windows:
            if window is not None and window < self.block_size:
                raise SoonerError(
                    f"DFlash: sliding_window is {window}, less than a block of {self.block_size}; "
                    "give a window that holds a block"
                )

    @property
    def drafts(self) -> int:
        """Most tokens that a block drafts."""
        return self.block_size - (not self.from_anchor)

    @property
    def states_width(self) -> int:
        """Returns the width of the target's states that make an entry of the context,
        concatenated.
        """
        return len(self.layers) * (self.target_hidden_size or self.hidden_size)

    def qwen3(self) -> Qwen3Config:
        """Returns the same sizes as transformers' Qwen3 takes them."""
        return Qwen3Config(**{name: getattr(self, name) for name in QWEN3}, **self._rope)

    @property
    def _rope(self) -> dict[str, Any]:
        return {"rope_parameters": dict(self.rope_parameters or {"rope_type": "default"})}

    def published(self) -> dict[str, Any]:
        """`config.json` as z-lab's repositories have it.

        Raises:
            SoonerError: a drafter that this layout can't tell, such as one with a head of its own.
        """
        kinds = [SLIDING if window else "full_attention" for window in self.windows]
        if self.draft_vocab_size is not None or self.from_anchor or 0 in self.layers:
            raise SoonerError(
                "a DFlash drafter with a vocabulary or an anchor of speculators' kind has no place "
                "in z-lab's layout; keep the files that it was read from"
            )
        sliding = next((window for window in self.windows if window), None)
        scales = {
            name: getattr(self, name)
            for name in OPTIONS[3:]
            if getattr(self, name) != getattr(DFlashConfig, name)
        }
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen3",
            **{name: getattr(self, name) for name in QWEN3},
            **self._rope,
            "block_size": self.block_size,
            **({} if self.vocab_size is None else {"vocab_size": self.vocab_size}),
            "layer_types": kinds,
            "sliding_window": sliding,
            "use_sliding_window": sliding is not None,
            **({"is_causal": False} if sliding and not any(self.causal) else {}),
            "dflash_config": {
                "mask_token_id": self.mask_token_id,
                "target_layer_ids": [layer - 1 for layer in self.layers],
                **scales,
            },
            **({CONFIG_KEY: dict(self.provenance)} if self.provenance else {}),
        }

    @staticmethod
    def load(folder: Path) -> DFlashConfig:
        """Read `config.json`.

        Raises:
            SoonerError: no such file, or a key that is unknown, missing or out of range.
            UnsupportedError: positions of several axes.
        """
        return read_dflash_config(read_config(folder), folder / CONFIG)


def is_dflash(raw: Mapping[str, Any]) -> bool:
    """Returns whether a published config is of a DFlash drafter."""
    spec = raw.get("speculative_config")
    method = spec.get("method") if isinstance(spec, Mapping) else None
    names = (raw.get("speculators_model_type"), raw.get("model_type"), method)
    return "dflash" in str((*(raw.get("architectures") or ()), *names)).lower() or (
        "mask_token_id" in raw and "target_layer_ids" in raw
    )


def read_dflash_config(raw: Mapping[str, Any], where: Any) -> DFlashConfig:
    """Returns the config in any of the published layouts.

    - z-lab's: `model_type` is qwen3, `architectures` says DFlashDraftModel; `target_layer_ids` i
      means `hidden_states[i + 1]`.
    - transformers' assistants (`muse_glimmer_assistant`): the same keys at the top level; sliding
      layers see their whole block.
    - speculators': `transformer_layer_config` within, `aux_hidden_state_layer_ids` k means
      `hidden_states[k]`; or flat, with a `speculative_config`.

    Args:
        raw: content of `config.json`.
        where: its path, for errors.

    Raises:
        SoonerError, UnsupportedError: see `DFlashConfig.load`.
    """
    if "speculators_model_type" in raw:
        return _speculators(raw, where)
    if isinstance(raw.get("speculative_config"), Mapping):
        return _open_spec(raw, where)
    options = dict(raw.get("dflash_config") or {})
    for name in options:
        if name not in OPTIONS:
            raise unknown(f"key of dflash_config in '{where}'", name, OPTIONS)
    for name in OPTIONS:
        options.setdefault(name, raw.get(name))
    is_assistant = str(raw.get("model_type", "")).endswith("_assistant")
    is_causal = raw.get("is_causal", False if is_assistant else None)
    ids = needed(options, "target_layer_ids", where)
    return _config(
        raw, where, layers=[int(layer) + 1 for layer in ids], is_causal=is_causal,
        block_size=options["block_size"] or 16,
        mask_token_id=needed(options, "mask_token_id", where),
        **{name: options[name] for name in OPTIONS[3:] if options[name] is not None},
    )  # fmt: skip


def _speculators(raw: Mapping[str, Any], where: Any) -> DFlashConfig:
    inner = dict(needed(raw, "transformer_layer_config", where))
    return _config(
        inner, where, layers=needed(raw, "aux_hidden_state_layer_ids", where),
        is_causal=False if raw.get("sliding_window_non_causal") else None,
        block_size=raw.get("block_size", 8), mask_token_id=needed(raw, "mask_token_id", where),
        from_anchor=bool(raw.get("sample_from_anchor")),
        draft_vocab_size=raw.get("draft_vocab_size"),
        target_hidden_size=raw.get("target_hidden_size"),
    )  # fmt: skip


def _open_spec(raw: Mapping[str, Any], where: Any) -> DFlashConfig:
    spec = dict(raw["speculative_config"])
    from_anchor = bool(spec.get("sample_from_anchor"))
    start = int(spec.get("target_layer_start_idx", 1))
    ids = needed(spec, "target_layer_ids", where)
    return _config(
        raw, where, layers=[int(layer) + 1 - start for layer in ids],
        is_causal=False if spec.get("sliding_window_non_causal") else None,
        block_size=int(needed(spec, "speculative_tokens", where)) + (not from_anchor),
        mask_token_id=needed(spec, "mask_token_id", where), from_anchor=from_anchor,
        draft_vocab_size=spec.get("draft_vocab_size"),
        target_hidden_size=raw.get("target_hidden_size"),
    )  # fmt: skip


def _config(
    raw: Mapping[str, Any], where: Any, *, layers: Any, is_causal: bool | None, **more: Any
) -> DFlashConfig:
    """The sizes of the layers, from a config of Qwen3's kind, with what a layout tells apart."""
    kinds = raw.get("layer_types") or ["full_attention"]
    if is_causal is None:
        causal = tuple(kind == SLIDING for kind in kinds)
    else:
        causal = tuple(bool(is_causal) for _ in kinds)
    draft_vocab = more.pop("draft_vocab_size", None)
    vocab = raw.get("vocab_size")
    return DFlashConfig(
        **layer_sizes(raw, where),
        num_hidden_layers=int(needed(raw, "num_hidden_layers", where)),
        rope_parameters=_rope(raw, where),
        attention_bias=bool(raw.get("attention_bias", False)),
        hidden_act=str(raw.get("hidden_act", "silu")),
        max_position_embeddings=int(raw.get("max_position_embeddings", 40_960)),
        layers=tuple(int(layer) for layer in layers),
        windows=tuple(
            int(needed(raw, "sliding_window", where)) if kind == SLIDING else None for kind in kinds
        ),
        causal=causal,
        vocab_size=None if vocab is None else int(vocab),
        draft_vocab_size=None if draft_vocab is None else int(draft_vocab),
        provenance=dict(raw.get(CONFIG_KEY) or {}),
        **more,
    )


def _rope(raw: Mapping[str, Any], where: Any) -> dict[str, Any]:
    """Returns RoPE's settings from `rope_parameters`, or from the older `rope_theta` and
    `rope_scaling`.

    Raises:
        UnsupportedError: positions of several axes.
    """
    rope = dict(raw.get("rope_parameters") or {})
    if not rope:
        rope = dict(raw.get("rope_scaling") or {})
        rope["rope_theta"] = raw.get("rope_theta", 1_000_000.0)
    rope.setdefault("rope_type", rope.pop("type", "default"))
    if rope.get("mrope_section"):
        raise UnsupportedError(
            f"'{where}' asks for M-RoPE; DFlash drafters number the tokens of a row, also those of "
            "M-RoPE targets, so train it without mrope_section"
        )
    rope.setdefault("rope_theta", 1_000_000.0)
    return rope
