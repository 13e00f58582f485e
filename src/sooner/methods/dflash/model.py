"""The DFlash drafter: a few bidirectional layers that denoise a block of tokens in one forward, and
its sizes, read from the configs that people publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn
from transformers import Qwen3Config
from transformers.activations import ACT2FN
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
)

from ...checks import check_whole
from ...errors import SoonerError, UnsupportedError
from ..draft_module import (
    DraftConfig,
    DraftModule,
    Rotation,
    refuse,
    rotated,
    saved_fields,
    whole_vocabulary,
)
from ..published import CONFIG, CONFIG_KEY, MATCHING, Weights, needed, renamed, size_of
from .chain import BlockConv, around, chain_head, chain_options, published_chain

FULL, SLIDING = "full_attention", "sliding_attention"

QWEN3 = ("num_hidden_layers", "attention_bias", "hidden_act", "layer_types", "sliding_window")
"""Fields that Qwen3's config has, too, beside those of any decoder."""

SCALES = ("input_embedding_scale", "output_multiplier", "final_logit_softcapping")

SPECULATORS_USUAL: Mapping[str, Mapping[str, Any]] = {
    "dspark": {"sample_from_anchor": True, "markov_rank": 256},
    "dflash2": {
        "sliding_window_non_causal": True, "selector_rank": 256, "selector_top_k": 16,
        "conv_kernel_size": 2, "conv_group_size": 16,
    },
}  # fmt: skip
"""Defaults of speculators' kinds, which a file may leave out."""

KINDS = ("dflash", "dspark", "domino")


def kind_of(config: Mapping[str, Any]) -> str:
    """Returns what a config.json calls its drafter, in small letters."""
    spec, within = config.get("speculative_config"), config.get("dflash_config") or {}
    names = [config.get(name) for name in ("speculators_model_type", "model_type")]
    names += [*(config.get("architectures") or ()), within.get("projector_type")]
    return str([*names, spec.get("method") if isinstance(spec, Mapping) else None]).lower()


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
        chain: what makes the tokens of a block depend on each other; see `chain_options`.
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
    chain: dict[str, Any] = field(default_factory=dict)
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None

    def __post_init__(self) -> None:
        check_whole("DFlash: block_size", self.block_size, 2)
        if self.rope_parameters.get("mrope_section"):
            raise UnsupportedError(
                "DFlash: its config asks for M-RoPE; DFlash drafters number the tokens of a row, "
                "also those of M-RoPE targets, so train it without mrope_section"
            )
        if self.chain:
            check_whole("DFlash: vocab_size", self.vocab_size, hint=MATCHING)
        kinds = self.layer_types or (FULL,) * self.num_hidden_layers
        object.__setattr__(self, "layer_types", kinds)
        count, known = self.num_hidden_layers, {FULL, SLIDING}
        refuse("DFlash", {
            f"hidden_act '{self.hidden_act}', which transformers lacks":
                self.hidden_act not in ACT2FN,
            f"layer_types {'/'.join(kinds)} of {count} layers; each is of one of {sorted(known)}":
                len(kinds) != count or not known.issuperset(kinds),
        })  # fmt: skip
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

    @classmethod
    def of_layout(cls, raw: Mapping[str, Any], where: Path | str) -> Self:
        """Returns what a config.json of any of the published layouts means.

        - z-lab's: `model_type` is qwen3, `architectures` says DFlashDraftModel; `target_layer_ids`
          i means `hidden_states[i + 1]`.
        - transformers' assistants (`muse_glimmer_assistant`): the same keys at the top level;
          sliding layers see their whole block.
        - SpecForge's DSpark and Domino: z-lab's with a `projector_type`; DeepSpec's DSpark has the
          same keys at the top level.
        - speculators': `transformer_layer_config` within, `aux_hidden_state_layer_ids` k means
          `hidden_states[k]`; or flat, with a `speculative_config`.

        Raises:
            SoonerError: a key that is missing or out of range.
            UnsupportedError: positions of several axes.
        """
        layer, spec = raw, raw.get("speculative_config")
        shift, usual_size = 1, 16
        if "speculators_model_type" in raw:
            layer, shift, usual_size = needed(raw, "transformer_layer_config", where), 0, 8
            usual = SPECULATORS_USUAL.get(str(raw["speculators_model_type"]), {})
            options = {**usual, **raw}
            ids = needed(raw, "aux_hidden_state_layer_ids", where)
        elif isinstance(spec, Mapping):
            size = size_of(spec, "speculative_tokens", where)
            options = {**raw, **spec, "block_size": size + (not spec.get("sample_from_anchor"))}
            ids = needed(spec, "target_layer_ids", where)
            shift -= int(spec.get("target_layer_start_idx", 1))
        else:
            within = raw.get("dflash_config") or {}
            options = {**raw, **within}
            ids = needed(options, "target_layer_ids", where)
        is_causal, from_anchor = options.get("is_causal"), options.get("sample_from_anchor")
        if from_anchor is None:  # DSpark drafts so, and Domino where its labels are shifted
            from_anchor = "dspark" in kind_of(raw) or "markov_rank" in options
            from_anchor |= "domino" in kind_of(raw) and bool(options.get("shift_label"))
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
            "from_anchor": from_anchor,
            "chain": chain_options({**layer, **options}, where),
        }
        return cls.read(fields, where)


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Told `(layer, queries [rows, heads, entries, dim], keys, values [rows, kv_heads, entries, dim])`
of a block; gives what its queries found, as the queries."""


RENAMES = (
    ("encoder.fc.", "fc."), ("encoder.output_norm_enc.", "hidden_norm."),
    ("candidate_selector.", "chain."), ("markov_head.", "chain."),
    ("prefix_gru.", "chain.prefix_gru."), ("embed_proj.", "chain.embed_proj."),
)  # fmt: skip
"""What transformers' assistants call them, and where the parts of a chain head lie."""

FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Projections that vLLM keeps in one tensor, one below the other."""


class DFlashModel(DraftModule):
    """Drafts blocks from the target's states (DFlash, Chen et al. 2026, arXiv 2602.06036).

    An entry of the *context* is `hidden_norm(fc([s_1; ...; s_n]))` of a committed token, made from
    the target's states of n of its layers. It is the same for all layers, each of which makes keys
    and values of it; queries come from the block alone. The *block* is the embedding of the last
    committed token (the anchor, which the target has not forwarded yet) and of mask tokens; its
    entries see the whole context and, unless a layer is causal, each other. What the target's LM
    head makes of entry `i` is the marginal distribution of the token at place `i`.

    Positions number the tokens of a row, from 0, also for targets with M-RoPE: what is published
    for them (`rope_scaling` null; vLLM refuses M-RoPE drafters) trains it so.
    """

    kind, title = "DFlash drafter", "DFlash"
    methods = ("dflash", "ddtree")
    config: DFlashConfig

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config)
        count = config.num_hidden_layers
        qwen3 = config.as_transformers(
            Qwen3Config, num_hidden_layers=count, attention_bias=config.attention_bias,
            hidden_act=config.hidden_act,
        )  # fmt: skip
        width = len(config.layers) * (config.target_hidden_size or config.hidden_size)
        self.fc = nn.Linear(width, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(qwen3, layer) for layer in range(count))
        self.norm = Qwen3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Qwen3RotaryEmbedding(qwen3)
        self.chain = chain_head(config)
        if "conv_kernel_size" in config.chain:
            for layer in self.layers:
                layer.attention_conv, layer.mlp_conv = BlockConv(config), BlockConv(config)

    @staticmethod
    def matches(config: Mapping[str, Any], names: set[str]) -> bool:
        keys = {"mask_token_id", "target_layer_ids"}
        return any(kind in kind_of(config) for kind in KINDS) or config.keys() >= keys

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        sizes = DFlashConfig.of_layout(config, folder / CONFIG)
        model, weights = cls(sizes), Weights.read(folder, cls.kind, RENAMES)
        _split(weights, sizes)
        model.take_tables(weights)
        weights.fill(model)
        return model.eval()

    def published(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the drafter in z-lab's or SpecForge's layout, which SGLang reads.

        Raises:
            UnsupportedError: a drafter that this layout can't tell.
        """
        config = self.config
        architecture, chain, prefix = published_chain(config)
        from_anchor = chain.get("shift_label", "markov_rank" in chain)
        is_odd = config.from_anchor != from_anchor or 0 in config.layers
        layers, scales = self._parts("z-lab", is_odd)
        within = {
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": [layer - 1 for layer in config.layers],
            **scales,
            **chain,
        }
        content = {"architectures": [architecture], **layers, "block_size": config.block_size}
        if config.is_causal is not None:
            content["is_causal"] = config.is_causal
        saved = {"dflash_config": within, CONFIG_KEY: saved_fields(config)}
        tensors = {
            renamed(name, [("chain.", prefix)]): of for name, of in self.state_dict().items()
        }
        return {**content, **saved}, tensors

    def speculators(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config = self.config
        is_usual = config.causal == tuple(kind == SLIDING for kind in config.layer_types)
        is_odd = bool(config.chain) or (not is_usual and any(config.causal))
        layers, scales = self._parts("speculators", is_odd)
        refuse("DFlash", {f"{', '.join(scales)}, which speculators' layout lacks": scales})
        content = config.speculators(
            "dflash", config.drafts, layers, architectures=["DFlashSpeculator"],
            block_size=config.block_size, mask_token_id=config.mask_token_id,
            aux_hidden_state_layer_ids=config.layers, sample_from_anchor=config.from_anchor,
            sliding_window_non_causal=not is_usual,
        )  # fmt: skip
        return content, self.state_dict()

    def _parts(self, layout: str, is_odd: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the config of the layers, and unusual scales.

        Raises:
            UnsupportedError: a drafter that a layout can't tell, or (`is_odd`) its block.
        """
        config, names = self.config, (*QWEN3, *SCALES)
        is_reduced = config.draft_vocab_size not in (None, config.vocab_size)
        refuse("DFlash", {
            "a reduced vocabulary, a chain head, or a block that is drafted or masked in a way "
            f"that is not written in {layout}'s layout; keep the files that it was read from":
                is_odd or is_reduced,
        })  # fmt: skip
        fields = {name: getattr(config, name) for name in names}
        scales = {n: fields.pop(n) for n in SCALES if fields[n] != getattr(DFlashConfig, n)}
        layers = {name: fields[name] for name in QWEN3}
        use = SLIDING in config.layer_types
        return config.decoder("qwen3", **layers, use_sliding_window=use), scales

    def context(self, states: Tensor) -> Tensor:
        """Returns entries of the context, `[rows, entries, hidden]`, of states of the target's
        layers side by side, `[rows, entries, layers * hidden]`."""
        return self.hidden_norm(self.fc(states.to(self.device, self.dtype)))

    def keys_values(self, layer: int, entries: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Returns keys and values of a layer, `[rows, kv_heads, entries, dim]` each, of entries of
        the context, or of the block as they enter its attention, `[rows, entries, hidden]`."""
        attention: Any = self.layers[layer].self_attn
        keys = attention.k_norm(self._split(attention.k_proj(entries)))
        return rotated(keys, rotation), self._split(attention.v_proj(entries))

    def denoise(self, embeds: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """Returns the states of blocks, `[rows, entries, hidden]`, for the LM head.

        Args:
            embeds: of their tokens, `[rows, entries, hidden]`.
            rotation: of their positions.
            attend: attention of a layer over the context and the blocks.
        """
        states = embeds.to(self.device, self.dtype) * self.config.input_embedding_scale
        for number, module in enumerate(self.layers):
            layer: Any = module
            entering, leave = around(layer, "attention_conv", layer.input_layernorm(states))
            attention = layer.self_attn
            queries = attention.q_norm(self._split(attention.q_proj(entering)))
            keys, values = self.keys_values(number, entering, rotation)
            output = attend(number, rotated(queries, rotation), keys, values)
            states = states + leave(attention.o_proj(output.transpose(1, 2).flatten(2)))
            entering, leave = around(layer, "mlp_conv", layer.post_attention_layernorm(states))
            states = states + leave(layer.mlp(entering))
        return self.norm(states)

    def embed(self, tokens: Tensor, adapter: Any) -> Tensor:
        """Returns embeddings of `tokens [rows, entries]`: the target's, or those of its file."""
        if self.embed_tokens is None:
            return adapter.embed_tokens(tokens.to(adapter.device))
        return self.embed_tokens(tokens.to(self.device))

    def logits(self, states: Tensor, adapter: Any) -> Tensor:
        """Returns logits `[rows, entries, vocab]`, by the target's ids, of denoised `states [rows,
        entries, hidden]`; those that a reduced vocabulary lacks are minus infinity."""
        config = self.config
        if self.lm_head is None:
            logits = adapter.logits(states.to(adapter.dtype))
        else:
            logits = self.lm_head(states)
        logits = logits * config.output_multiplier
        if (cap := config.final_logit_softcapping) is not None and cap > 0:
            logits = (logits / cap).tanh() * cap
        if self.token_ids is None:
            return logits
        return whole_vocabulary(logits, self.token_ids, adapter.vocab_size)

    def corrected_logits(
        self, token: Tensor, logits: Tensor, states: Tensor, memory: Any, adapter: Any
    ) -> tuple[Tensor, Any]:
        """Returns a place's logits as the chain head corrects them, by the target's ids, `[rows, 1,
        vocab]`, and what it has to remember; see `MarkovHead.forward`."""
        chain, ids, embeds = self.chain, self.token_ids, self.embed(token, adapter)
        assert chain is not None
        if ids is None:
            corrected: tuple[Tensor, Any] = chain(logits, states, token, embeds, memory)
            return corrected
        reduced, memory = chain(logits[..., ids], states, token, embeds, memory)
        return whole_vocabulary(reduced, ids, logits.shape[-1]), memory

    def target_sizes(self, adapter: Any) -> dict[str, tuple[Any, Any]]:
        vocab = adapter.vocab_size
        sizes = {"vocab_size": (self.config.vocab_size or vocab, vocab)}
        return {**super().target_sizes(adapter), **sizes}

    def check(self, adapter: Any) -> None:
        mask, vocab = self.config.mask_token_id, adapter.vocab_size
        super().check(adapter)
        if self.embed_tokens is None and mask >= vocab:
            raise SoonerError(
                f"DFlash drafter has mask_token_id {mask}, but the vocabulary of "
                f"{type(adapter.model).__name__} ends at {vocab - 1}; resize the target's "
                "embedding as its card says"
            )


def _split(weights: Weights, config: DFlashConfig) -> None:
    """Split fused projections."""
    kv = config.num_key_value_heads * config.head_dim
    rows = {
        "self_attn.qkv_proj": [config.num_attention_heads * config.head_dim, kv, kv],
        "mlp.gate_up_proj": [config.intermediate_size] * 2,
    }
    for name, value in list(weights.tensors.items()):
        fused = next((key for key in FUSED if f".{key}." in name), None)
        if fused is not None and value.shape[0] == sum(rows[fused]):
            del weights.tensors[name]
            for part, piece in zip(FUSED[fused], value.split(rows[fused]), strict=True):
                weights.tensors[name.replace(fused, part)] = piece
