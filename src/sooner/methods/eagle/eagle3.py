"""The draft head of EAGLE-3: one layer on low, middle and high states of the target.

It is read in the layouts of SafeAILab, SpecForge and speculators, and written in the last two.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from ...errors import SoonerError
from ..draft_module import DraftConfig, Rotation, refuse, saved_fields, whole_vocabulary
from ..published import CONFIG, CONFIG_KEY, Weights, needed, renamed
from .head import DraftHead

ARCHITECTURE = "LlamaForCausalLMEagle3"
RENAMES = (("midlayer.", "layer."), ("layers.0.", "layer."))
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
IDS = "eagle_aux_hidden_state_layer_ids"
SPECULATIVE_TOKENS = 5
"""Tokens that vLLM drafts in a step by default, as speculators has it."""


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(DraftConfig):
    """Holds what an EAGLE-3 head's config says beside sizes that its computation depends on.

    With `mrope_section` in `rope_parameters`, positions are the target's.

    Attributes:
        layer_ids: `hidden_states` indices that it reads; `None` is EAGLE-3's own choice,
            2, n/2 and n - 3 of n layers.
        norm_before_residual: the residual is the normalised state.
        norm_before_fc: the target's states are normalised before `fc`.
        sees_pixels: it was trained on embeddings of pixels, not of placeholder tokens (sooner's own
            key; other frameworks do the one or the other).
    """

    vocab_size: int
    layer_ids: tuple[int, ...] | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    sees_pixels: bool = True

    def __post_init__(self) -> None:
        if (kind := self.rope_parameters["rope_type"]) not in ROPE_TYPES:
            raise SoonerError(
                f"EAGLE-3 head: rope_type is '{kind}', whose angles depend on the length; known: "
                f"{', '.join(ROPE_TYPES)}"
            )

    @classmethod
    def of_layout(cls, config: Mapping[str, Any], where: Path) -> Self:
        """Returns what a config.json of any layout means.

        Raises:
            SoonerError: a key is missing.
            UnsupportedError: an option that can't be run.
        """
        is_speculators = "speculators_model_type" in config
        layer = config
        if is_speculators:
            layer = needed(config, "transformer_layer_config", where)
        eagle = config.get("eagle_config") or {}
        layers = layer.get("num_hidden_layers", 1)
        kinds = set(layer.get("layer_types") or ()) - {"full_attention"}
        ids = config.get(IDS) or eagle.get(IDS)
        refuse("EAGLE-3 head", {
            f"num_hidden_layers {layers}; one layer is run": layers != 1,
            f"hidden_act '{layer.get('hidden_act')}'; SiLU is run":
                layer.get("hidden_act", "silu") != "silu",
            "use_aux_hidden_state false, a head on the last states alone":
                not eagle.get("use_aux_hidden_state", True),
            f"logit_scale {config.get('logit_scale')}": config.get("logit_scale", 1.0) != 1.0,
            f"{'/'.join(sorted(kinds))} layers; full attention is run":
                kinds or layer.get("use_sliding_window"),
            "quantised weights; publish them as floats": config.get("quantization_config"),
            "a partial rotation (partial_rotary_factor)":
                layer.get("partial_rotary_factor", 1.0) != 1,
            f"{IDS} {ids}; it must name three layers, as `fc` reads three":
                ids is not None and len(ids) != 3,
        })  # fmt: skip
        needed(layer, "vocab_size", where)
        # Speculators' k is hidden_states[k]; SpecForge's and SGLang's i is what layer i gives,
        # hidden_states[i + 1]. Their default is not shifted.
        shift = 0 if is_speculators else 1
        given = None if ids is None else [int(number) + shift for number in ids]
        raw = {"max_position_embeddings": 2048, **config, **layer, "layer_ids": given}
        return cls.read(raw, where)


class Eagle3Head(DraftHead):
    """Holds EAGLE-3's head (Li et al. 2025, section 3): it drafts tokens, not states of the target.

    Of the target it reads the states before three layers, `g = fc([low; middle; high])`. An entry
    is `g_i` with the embedding `e_{i+1}` of the token behind it; queries, keys and values are made
    of `[input_layernorm(e); hidden_norm(g)]`, and attention and MLP are added to `g` (or to its
    norm). What comes out is the state behind which the draft goes on, in place of `g`; `norm` and
    `lm_head` make logits of it, over all of the target's tokens or a reduced vocabulary; without
    `draft_vocab_size`, the LM head is the target's.
    """

    title = "EAGLE-3"
    config: Eagle3Config
    token_ids: Tensor
    axes: Tensor | None

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__(config)
        hidden, eps = config.hidden_size, config.rms_norm_eps
        llama = config.as_transformers(LlamaConfig, num_hidden_layers=1)
        read = 3 * (config.target_hidden_size or hidden)
        self.input_norm = LlamaRMSNorm(read, eps) if config.norm_before_fc else None
        self.fc = nn.Linear(read, hidden, bias=False)
        self.layer = LlamaDecoderLayer(llama, 0)
        self.layer.hidden_norm = LlamaRMSNorm(hidden, eps)
        for name in ("q_proj", "k_proj", "v_proj"):
            width = getattr(self.layer.self_attn, name).out_features
            setattr(self.layer.self_attn, name, nn.Linear(2 * hidden, width, bias=False))
        self.norm = LlamaRMSNorm(hidden, eps)
        if config.draft_vocab_size is not None:
            self.lm_head = nn.Linear(hidden, config.draft_vocab_size, bias=False)
        self.rotary = LlamaRotaryEmbedding(llama)
        self.token_ids = torch.arange(config.draft_vocab_size or config.vocab_size)
        self.register_buffer("axes", _axes(config), persistent=False)
        self.wants_positions, self.sees_pixels = self.axes is not None, config.sees_pixels

    @staticmethod
    def matches(config: Mapping[str, Any], names: set[str]) -> bool:
        kinds = [config.get("speculators_model_type"), *(config.get("architectures") or ())]
        if any("eagle3" in str(kind).lower() for kind in kinds):
            return True
        # SafeAILab's first heads name plain Llama; the layer on twice the width tells them.
        return "draft_vocab_size" in config and names >= {"midlayer.hidden_norm.weight", "d2t"}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        weights = Weights.read(folder, "EAGLE-3 head", RENAMES)
        sizes = Eagle3Config.of_layout(config, folder / CONFIG)
        tensors = weights.tensors
        if config.get("tie_word_embeddings") and "embed_tokens.weight" in tensors:
            tensors.setdefault("lm_head.weight", tensors["embed_tokens.weight"])
        head = cls(sizes)
        head.take_tables(weights)
        attention, eps = head.layer.self_attn, sizes.rms_norm_eps
        for name in ("q_norm", "k_norm"):
            if f"layer.self_attn.{name}.weight" in tensors:
                setattr(attention, name, LlamaRMSNorm(sizes.head_dim, eps))
        for name, module in head.named_modules():
            if isinstance(module, nn.Linear) and f"{name}.bias" in tensors:
                module.bias = nn.Parameter(torch.empty(module.out_features))
        weights.fill(head)
        return head.eval()

    def published(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the head in SpecForge's layout, as SGLang reads it.

        Raises:
            UnsupportedError: an option of speculators' that SGLang would pass over.
        """
        config = self.config
        decoder, tensors = self._parts("midlayer.")
        refuse("EAGLE-3 head", {
            "what SGLang's layout has no place for (norms of queries, before fc or before the "
            "residual, biases); write layout 'speculators'":
                config.norm_before_fc or config.norm_before_residual
                or any(name.endswith((".bias", "q_norm.weight")) for name in tensors),
        })  # fmt: skip
        content: dict[str, Any] = {
            "architectures": [ARCHITECTURE], **decoder, "draft_vocab_size": len(self.token_ids),
            "target_hidden_size": config.target_hidden_size or config.hidden_size,
            "torch_dtype": str(self.dtype).removeprefix("torch."), "use_cache": True,
            CONFIG_KEY: saved_fields(config),
        }  # fmt: skip
        if config.layer_ids is not None:  # layer i gives hidden_states[i + 1]
            below = [number - 1 for number in config.layer_ids]
            content["eagle_config"] = {IDS: below, "use_aux_hidden_state": True}
        return content, tensors

    def speculators(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config = self.config
        decoder, tensors = self._parts("layers.0.")
        content = config.speculators(
            "eagle3", SPECULATIVE_TOKENS, decoder, architectures=["Eagle3Speculator"],
            norm_before_residual=config.norm_before_residual,
            norm_before_fc=config.norm_before_fc, **{IDS: config.layer_ids},
        )  # fmt: skip
        return content, tensors

    def _parts(self, layer: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the config of the layer, and all tensors; `layer` begins the names of its own."""
        state, ids, vocab = self.state_dict(), self.token_ids.cpu(), self.config.vocab_size
        tensors = {renamed(name, [("layer.", layer)]): state[name] for name in state}
        if not torch.equal(ids, torch.arange(vocab)):
            tensors["d2t"] = ids - torch.arange(len(ids))
            tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, ids, True)
        decoder = self.config.decoder(
            "qwen3" if "layer.self_attn.q_norm.weight" in state else "llama",
            attention_bias="layer.self_attn.q_proj.bias" in state,
            mlp_bias="layer.mlp.up_proj.bias" in state,
        )
        return decoder, tensors

    @property
    def vocab_size(self) -> int | None:
        return None if self.lm_head is None else len(self.token_ids)

    def layer_ids_for(self, adapter: Any) -> tuple[int, ...]:
        if self.config.layer_ids is not None:
            return self.config.layer_ids
        layers = int(adapter.layers)
        if layers < 4:
            raise SoonerError(
                f"the target has {layers} layers, and the draft head's config names none to read; "
                f"EAGLE-3's own choice (2, n/2, n - 3) takes four or more: name them in {CONFIG}"
            )
        return (2, layers // 2, layers - 3)

    def check(self, adapter: Any) -> None:
        super().check(adapter)
        highest = int(self.token_ids.max())
        if self.lm_head is not None and highest >= adapter.vocab_size:
            raise SoonerError(
                f"draft head drafts token {highest}, the target's vocabulary ends at "
                f"{adapter.vocab_size - 1}; give the target that it was trained for"
            )

    def placed(self, target: Any) -> Self:
        head = super().placed(target)
        table, weight = getattr(target.embedding, "weight", None), self.embed_tokens
        if weight is None or not isinstance(table, Tensor) or weight.weight.shape != table.shape:
            return head
        if torch.equal(weight.weight.to(table.device, table.dtype), table):
            # Many files repeat the target's table, which need not lie in memory twice.
            head = copy.copy(head)
            head._modules = {**head._modules, "embed_tokens": None}
        return head

    def read(self, states: Tensor) -> Tensor:
        width: int = self.fc.in_features
        states = states[..., states.shape[-1] - width :].to(self.device, self.dtype)
        return self.fc(states if self.input_norm is None else self.input_norm(states))

    def embed(
        self, embeds: Tensor, ids: Tensor | None = None, visual: Tensor | None = None
    ) -> Tensor:
        if self.embed_tokens is None or ids is None:
            return embeds
        table = self.embed_tokens
        states = table(ids.to(self.device).clamp(0, table.num_embeddings - 1))
        if visual is None or embeds.shape[-1] != states.shape[-1]:
            return states
        return torch.where(
            visual.to(states.device)[..., None], embeds.to(states.device, states.dtype), states
        )

    def rotation(self, positions: Tensor) -> Rotation:
        """Also of positions by axis, `[axes, rows, entries]`, where `mrope_section` says which
        axis turns which part."""
        if self.axes is None:
            return super().rotation(positions)
        if positions.ndim == 2:
            positions = positions.expand(int(self.axes.max()) + 1, -1, -1)
        turned = positions[self.axes].permute(1, 2, 0).float()  # [rows, entries, head_dim / 2]
        angles = (turned * self.rotary.inv_freq.float()).repeat(1, 1, 2)[:, None]
        scale = self.rotary.attention_scaling
        return (angles.cos() * scale).to(self.dtype), (angles.sin() * scale).to(self.dtype)

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        """Returns `[norm(e); norm(g); residual]`, `[rows, entries, 3 * hidden]`."""
        layer, states = self.layer, states.to(self.dtype)
        normed = layer.hidden_norm(states)
        residual = normed if self.config.norm_before_residual else states
        return torch.cat([layer.input_layernorm(embeds.to(self.dtype)), normed, residual], -1)

    def attention_input(self, fused: Tensor) -> Tensor:
        return fused[..., : 2 * self.config.hidden_size]

    def residual(self, fused: Tensor) -> Tensor:
        return fused[..., 2 * self.config.hidden_size :]

    def drafted_logits(self, states: Tensor) -> Tensor:
        """Returns logits of the reduced vocabulary, `[rows, entries, draft_vocab_size]`."""
        assert self.lm_head is not None
        logits: Tensor = self.lm_head(self.norm(states))
        return logits

    def scores(self, states: Tensor, adapter: Any) -> Tensor:
        """Minus infinity for tokens that it can't draft."""
        if self.lm_head is None:
            return super().scores(self.norm(states), adapter)
        logits = self.drafted_logits(states).to(adapter.device)
        return whole_vocabulary(logits, self.token_ids, adapter.vocab_size)


def _axes(config: Eagle3Config) -> Tensor | None:
    """Axis of the position that turns each frequency, `[head_dim / 2]`, as in Qwen's M-RoPE."""
    section = config.rope_parameters.get("mrope_section")
    if section is None:
        return None
    if not config.rope_parameters.get("mrope_interleaved"):
        return torch.tensor([axis for axis, size in enumerate(section) for _ in range(size)])
    axes: Tensor = torch.zeros(config.head_dim // 2, dtype=torch.long)
    for axis in range(1, len(section)):
        axes[axis : len(section) * section[axis] : len(section)] = axis
    return axes
