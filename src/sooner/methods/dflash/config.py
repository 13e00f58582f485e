"""The sizes of a DFlash drafter, read from the configs that people publish."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers import Qwen3Config

from ...checks import check_number, check_whole
from ...errors import SoonerError, UnsupportedError, unknown
from ...io import write_json

FILE = "config.json"
ARCHITECTURE = "DFlashDraftModel"
SLIDING = "sliding_attention"
PROVENANCE = "sooner"
"""Key of what `sooner train draft` writes beside the published ones."""

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
        return Qwen3Config(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            rms_norm_eps=self.rms_norm_eps,
            rope_parameters=dict(self.rope_parameters or {"rope_type": "default"}),
            attention_bias=self.attention_bias,
            hidden_act=self.hidden_act,
            max_position_embeddings=self.max_position_embeddings,
        )

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
        data = asdict(self)
        names = (
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "rms_norm_eps", "attention_bias", "hidden_act",
            "max_position_embeddings", "block_size", "vocab_size",
        )  # fmt: skip
        sliding = next((window for window in self.windows if window), None)
        scales = {
            name: data[name]
            for name, usual in (
                ("input_embedding_scale", 1.0), ("output_multiplier", 1.0),
                ("final_logit_softcapping", None),
            )
            if data[name] != usual
        }  # fmt: skip
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen3",
            **{name: data[name] for name in names if data[name] is not None},
            "rope_parameters": dict(self.rope_parameters or {"rope_type": "default"}),
            "layer_types": kinds,
            "sliding_window": sliding,
            "use_sliding_window": sliding is not None,
            **({"is_causal": False} if sliding and not any(self.causal) else {}),
            "dflash_config": {
                "mask_token_id": self.mask_token_id,
                "target_layer_ids": [layer - 1 for layer in self.layers],
                **scales,
            },
            **({PROVENANCE: dict(self.provenance)} if self.provenance else {}),
        }

    def save(self, folder: Path) -> None:
        """Write `config.json`, in z-lab's layout."""
        write_json(self.published(), folder / FILE)

    @staticmethod
    def load(folder: Path) -> DFlashConfig:
        """Read `config.json`.

        Raises:
            SoonerError: no such file, or a key that is unknown, missing or out of range.
            UnsupportedError: positions of several axes.
        """
        path = folder / FILE
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SoonerError(
                f"drafter '{folder}' has no readable {FILE}; give a folder of a DFlash drafter"
            ) from error
        if not isinstance(raw, dict):
            raise SoonerError(f"'{path}' is no JSON object; give a folder of a DFlash drafter")
        return read_config(raw, str(path))


def is_dflash(raw: Mapping[str, Any]) -> bool:
    """Returns whether a published config is of a DFlash drafter."""
    spec = raw.get("speculative_config")
    method = spec.get("method") if isinstance(spec, Mapping) else None
    names = (raw.get("speculators_model_type"), raw.get("model_type"), method)
    return "dflash" in str((*(raw.get("architectures") or ()), *names)).lower() or (
        "mask_token_id" in raw and "target_layer_ids" in raw
    )


def read_config(raw: Mapping[str, Any], where: str) -> DFlashConfig:
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
    ids = _needed(options, "target_layer_ids", where)
    return _config(
        raw, where, layers=[int(layer) + 1 for layer in ids], is_causal=is_causal,
        block_size=options["block_size"] or 16,
        mask_token_id=_needed(options, "mask_token_id", where),
        **{name: options[name] for name in OPTIONS[3:] if options[name] is not None},
    )  # fmt: skip


def _speculators(raw: Mapping[str, Any], where: str) -> DFlashConfig:
    inner = dict(_needed(raw, "transformer_layer_config", where))
    return _config(
        inner, where, layers=_needed(raw, "aux_hidden_state_layer_ids", where),
        is_causal=False if raw.get("sliding_window_non_causal") else None,
        block_size=raw.get("block_size", 8), mask_token_id=_needed(raw, "mask_token_id", where),
        from_anchor=bool(raw.get("sample_from_anchor")),
        draft_vocab_size=raw.get("draft_vocab_size"),
        target_hidden_size=raw.get("target_hidden_size"),
    )  # fmt: skip


def _open_spec(raw: Mapping[str, Any], where: str) -> DFlashConfig:
    spec = dict(raw["speculative_config"])
    from_anchor = bool(spec.get("sample_from_anchor"))
    start = int(spec.get("target_layer_start_idx", 1))
    ids = _needed(spec, "target_layer_ids", where)
    return _config(
        raw, where, layers=[int(layer) + 1 - start for layer in ids],
        is_causal=False if spec.get("sliding_window_non_causal") else None,
        block_size=int(_needed(spec, "speculative_tokens", where)) + (not from_anchor),
        mask_token_id=_needed(spec, "mask_token_id", where), from_anchor=from_anchor,
        draft_vocab_size=spec.get("draft_vocab_size"),
        target_hidden_size=raw.get("target_hidden_size"),
    )  # fmt: skip


def _config(
    raw: Mapping[str, Any], where: str, *, layers: Any, is_causal: bool | None, **more: Any
) -> DFlashConfig:
    """The sizes of the layers, from a config of Qwen3's kind, with what a layout tells apart."""
    kinds = raw.get("layer_types") or ["full_attention"]
    if is_causal is None:
        causal = tuple(kind == SLIDING for kind in kinds)
    else:
        causal = tuple(bool(is_causal) for _ in kinds)
    heads = int(_needed(raw, "num_attention_heads", where))
    hidden = int(_needed(raw, "hidden_size", where))
    draft_vocab = more.pop("draft_vocab_size", None)
    vocab = raw.get("vocab_size")
    return DFlashConfig(
        hidden_size=hidden,
        intermediate_size=int(_needed(raw, "intermediate_size", where)),
        num_hidden_layers=int(_needed(raw, "num_hidden_layers", where)),
        num_attention_heads=heads,
        num_key_value_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or hidden // heads),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_parameters=_rope(raw, where),
        attention_bias=bool(raw.get("attention_bias", False)),
        hidden_act=str(raw.get("hidden_act", "silu")),
        max_position_embeddings=int(raw.get("max_position_embeddings", 40_960)),
        layers=tuple(int(layer) for layer in layers),
        windows=tuple(_window(raw, where) if kind == SLIDING else None for kind in kinds),
        causal=causal,
        vocab_size=None if vocab is None else int(vocab),
        draft_vocab_size=None if draft_vocab is None else int(draft_vocab),
        provenance=dict(raw.get(PROVENANCE) or {}),
        **more,
    )


def _window(raw: Mapping[str, Any], where: str) -> int:
    return int(_needed(raw, "sliding_window", where))


def _rope(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
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


def _needed(raw: Mapping[str, Any], name: str, where: str) -> Any:
    if raw.get(name) is None:
        raise SoonerError(f"'{where}' has no {name}; give the config that its weights came with")
    return raw[name]
