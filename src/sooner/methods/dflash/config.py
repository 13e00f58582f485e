"""The sizes of a DFlash drafter, read from the configs that people publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ...checks import check_number, check_whole
from ...errors import SoonerError, UnsupportedError, unknown
from ..draft_module import SIZES, DraftConfig, saved_fields
from ..published import CONFIG_KEY, needed

ARCHITECTURE = "DFlashDraftModel"
FULL, SLIDING = "full_attention", "sliding_attention"

PUBLISHED = (
    *SIZES, "num_hidden_layers", "attention_bias", "hidden_act", "max_position_embeddings",
    "rope_parameters", "layer_types", "sliding_window", "vocab_size", "block_size",
)  # fmt: skip
"""Fields that z-lab's layout has at its top level."""

SCALES = ("input_embedding_scale", "output_multiplier", "final_logit_softcapping")
OPTIONS = ("block_size", "mask_token_id", "target_layer_ids", *SCALES)
"""Keys of `dflash_config`; each may stand at the top level, too."""

SPECULATORS = (
    "block_size", "mask_token_id", "draft_vocab_size", "target_hidden_size", "sample_from_anchor",
    "sliding_window_non_causal",
)  # fmt: skip
"""Keys of speculators' layout beside those of the layers."""


@dataclass(frozen=True, kw_only=True)
class DFlashConfig(DraftConfig):
    """A stack of Qwen3 layers, and how a block of it is drafted (Chen et al. 2026).

    Attributes:
        num_hidden_layers, attention_bias, hidden_act, layer_types, sliding_window: as of Qwen3.
        block_size: entries of a block, the anchor (the last committed token) included.
        mask_token_id: what stands in a block for a token that is to be drafted.
        layers: states of the target that are read, numbered as `target_layers` does.
        is_causal: whether block entries see only those before them; `None`: on sliding layers.
        from_anchor: the anchor's own entry drafts, too, and each entry the token *behind* it.
        input_embedding_scale, output_multiplier, final_logit_softcapping: of embeddings and logits.

    Raises:
        SoonerError: sizes that do not fit together.
        UnsupportedError: positions of several axes.
    """

    num_hidden_layers: int
    block_size: int
    mask_token_id: int
    layers: tuple[int, ...]
    attention_bias: bool = False
    hidden_act: str = "silu"
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    is_causal: bool | None = None
    from_anchor: bool = False
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("DFlash: block_size", self.block_size, 2)
        check_whole("DFlash: mask_token_id", self.mask_token_id, 0)
        for name in SCALES[:2]:
            check_number(f"DFlash: {name}", getattr(self, name), 0, above=True)
        if not self.layers:
            raise SoonerError("DFlash: target_layer_ids is empty; name at least one layer")
        if self.rope_parameters.get("mrope_section"):
            raise UnsupportedError(
                "DFlash: its config asks for M-RoPE; DFlash drafters number the tokens of a row, "
                "also those of M-RoPE targets, so train it without mrope_section"
            )
        kinds, count = self.layer_types or (FULL,) * self.num_hidden_layers, self.num_hidden_layers
        object.__setattr__(self, "layer_types", kinds)
        if len(kinds) != count:
            raise SoonerError(
                f"DFlash: {len(kinds)} layer_types for {count} layers; name one for each"
            )
        if SLIDING in kinds:
            hint = ", as it holds a block"
            check_whole("DFlash: sliding_window", self.sliding_window, self.block_size, hint=hint)

    @cached_property
    def windows(self) -> tuple[int | None, ...]:
        """Returns the window of each layer, or `None` for all that lies before."""
        return tuple(self.sliding_window if kind == SLIDING else None for kind in self.layer_types)

    @cached_property
    def causal(self) -> tuple[bool, ...]:
        """Returns in which layers block entries see only those before them."""
        if self.is_causal is not None:
            return (self.is_causal,) * self.num_hidden_layers
        return tuple(kind == SLIDING for kind in self.layer_types)

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

    def published(self) -> dict[str, Any]:
        """`config.json` as z-lab's repositories have it.

        Raises:
            SoonerError: a drafter that this layout can't tell, such as one with a head of its own.
        """
        if self.draft_vocab_size is not None or self.from_anchor or 0 in self.layers:
            raise SoonerError(
                "a DFlash drafter with a vocabulary or an anchor of speculators' kind has no place "
                "in z-lab's layout; keep the files that it was read from"
            )
        scales = {
            name: getattr(self, name)
            for name in SCALES
            if getattr(self, name) != getattr(DFlashConfig, name)
        }
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen3",
            **{name: getattr(self, name) for name in PUBLISHED},
            "use_sliding_window": SLIDING in self.layer_types,
            **({} if self.is_causal is None else {"is_causal": self.is_causal}),
            "dflash_config": {
                "mask_token_id": self.mask_token_id,
                "target_layer_ids": [layer - 1 for layer in self.layers],
                **scales,
            },
            CONFIG_KEY: saved_fields(self),
        }

    @classmethod
    def of_layout(cls, raw: Mapping[str, Any], where: Path | str) -> Self:
        """Returns what a config.json of any of the published layouts means.

        - z-lab's: `model_type` is qwen3, `architectures` says DFlashDraftModel; `target_layer_ids`
          i means `hidden_states[i + 1]`.
        - transformers' assistants (`muse_glimmer_assistant`): the same keys at the top level;
          sliding layers see their whole block.
        - speculators': `transformer_layer_config` within, `aux_hidden_state_layer_ids` k means
          `hidden_states[k]`; or flat, with a `speculative_config`.

        Raises:
            SoonerError: a key that is unknown, missing or out of range.
            UnsupportedError: positions of several axes.
        """
        layer, spec = raw, raw.get("speculative_config")
        shift, usual_size = 1, 16
        if "speculators_model_type" in raw:
            layer, shift, usual_size = needed(raw, "transformer_layer_config", where), 0, 8
            options = {name: raw.get(name) for name in SPECULATORS}
            ids = needed(raw, "aux_hidden_state_layer_ids", where)
        elif isinstance(spec, Mapping):
            size = int(needed(spec, "speculative_tokens", where))
            options = {**raw, **spec, "block_size": size + (not spec.get("sample_from_anchor"))}
            ids = needed(spec, "target_layer_ids", where)
            shift -= int(spec.get("target_layer_start_idx", 1))
        else:
            within = raw.get("dflash_config") or {}
            for name in within:
                if name not in OPTIONS:
                    raise unknown(f"key of dflash_config in '{where}'", name, OPTIONS)
            options = {**raw, **within}
            ids = needed(options, "target_layer_ids", where)
        is_causal = options.get("is_causal")
        if is_causal is None and (
            options.get("sliding_window_non_causal")
            or str(raw.get("model_type", "")).endswith("_assistant")
        ):
            is_causal = False
        fields = {
            "rope_theta": 1_000_000.0,
            **layer,
            **options,
            "block_size": options.get("block_size") or usual_size,
            "layers": [int(number) + shift for number in ids],
            "is_causal": is_causal,
            "from_anchor": options.get("sample_from_anchor"),
        }
        return cls.read(fields, where)
