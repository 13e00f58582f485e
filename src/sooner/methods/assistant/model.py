"""Gemma 4's assistants: layers of queries, an MLP and norms without keys or values of their own,
and their sizes, read from the config.json that is published with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP

from ...errors import SoonerError
from ..draft_module import DraftConfig, DraftModule, Rotation, far_below, refuse, rotated
from ..published import CONFIG, Weights, needed, size_of

TYPES = ("gemma4_assistant", "gemma4_unified_assistant")
FULL, SLIDING = "full_attention", "sliding_attention"
ROPES = ("default", "proportional")

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

    @classmethod
    def of_layout(cls, raw: Mapping[str, Any], where: Path | str) -> Self:
        """Returns what a published config.json means.

        An option that brings tensors of its own, such as experts, is refused with those
        (`Weights.fill`).

        Raises:
            SoonerError: a key that is missing, or sizes that do not fit together.
            UnsupportedError: an option that is not computed here.
        """
        text = raw.get("text_config")
        if not isinstance(text, Mapping):
            raise SoonerError(
                f"'{where}' lacks text_config; give the config.json that was published"
            )
        types, named = needed(text, "layer_types", where), text.get("rope_parameters") or {}
        ropes = {kind: dict(named.get(kind) or usual) for kind, usual in USUAL.items()}
        kinds = sorted(set(types) - set(USUAL))
        angles = sorted({str(rope.get("rope_type")) for rope in ropes.values()} - {*ROPES})
        activation = text.get("hidden_activation", cls.hidden_activation)
        refuse("assistant", {
            "quantised weights; publish them as floats": raw.get("quantization_config"),
            f"{'/'.join(kinds)} layers; full_attention and sliding_attention are run": kinds,
            f"'{'/'.join(angles)}' RoPE; {' and '.join(ROPES)} are run": angles,
            "use_bidirectional_attention 'all'": text.get("use_bidirectional_attention") == "all",
            f"hidden_activation '{activation}'": activation not in ACT2FN,
        })  # fmt: skip
        head_dim = size_of(text, "head_dim", where, 256)
        dims = dict.fromkeys(types, head_dim)
        if FULL in dims and "per_layer_config" not in text:
            dims[FULL] = size_of(text, "global_head_dim", where, 512)
        for key, layer in (text.get("per_layer_config") or {}).items():
            kind = key if key in types else types[int(key)]
            dims[kind] = size_of(layer, "head_dim", where, dims[kind])
        has_clusters = bool(raw.get("use_ordered_embeddings"))
        fields = {
            **text, "rope_parameters": None, "head_dim": head_dim,
            "vocab_size": size_of(text, "vocab_size", where),
            "target_hidden_size": size_of(raw, "backbone_hidden_size", where), "layer_types": types,
            "head_dims": dims, "ropes": {kind: ropes[kind] for kind in dims},
            "num_centroids": raw.get("num_centroids", 2048) if has_clusters else None,
            "chosen_centroids": raw.get("centroid_intermediate_top_k"),
        }  # fmt: skip
        return cls.read(fields, where)


Attend = Callable[[str, Tensor], Tensor]
"""Told a kind of layer and queries `[rows, heads, 1, dim]`; gives what they found in the target's
keys and values, as the queries."""


class QueryLayer(nn.Module):
    """Holds one layer, with norms before and behind each of its two parts."""

    layer_scalar: Tensor

    def __init__(self, config: AssistantConfig, kind: str) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.kind, self.head_dim = kind, config.head_dims[kind]
        queries = config.num_attention_heads * self.head_dim
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(hidden, queries, bias=False),
                "q_norm": Gemma4RMSNorm(self.head_dim, eps),
                "o_proj": nn.Linear(queries, hidden, bias=False),
            }
        )
        self.mlp = LlamaMLP(
            LlamaConfig(
                hidden_size=hidden, intermediate_size=config.intermediate_size,
                num_attention_heads=1, hidden_act=config.hidden_activation,
            )
        )  # fmt: skip
        self.input_layernorm = Gemma4RMSNorm(hidden, eps)
        self.post_attention_layernorm = Gemma4RMSNorm(hidden, eps)
        self.pre_feedforward_layernorm = Gemma4RMSNorm(hidden, eps)
        self.post_feedforward_layernorm = Gemma4RMSNorm(hidden, eps)
        self.register_buffer("layer_scalar", torch.ones(1))

    def forward(self, states: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        attention = self.self_attn
        queries = attention["q_proj"](self.input_layernorm(states))
        queries = attention["q_norm"](queries.unflatten(-1, (-1, self.head_dim))).transpose(1, 2)
        output = attend(self.kind, rotated(queries, rotation))  # [rows, heads, 1, dim]
        made = attention["o_proj"](output.transpose(1, 2).flatten(2))
        states = states + self.post_attention_layernorm(made)
        made = self.mlp(self.pre_feedforward_layernorm(states))
        return (states + self.post_feedforward_layernorm(made)) * self.layer_scalar


class Centroids(nn.Module):
    """Which clusters of the vocabulary are scored, and which tokens are in each."""

    token_ordering: Tensor

    def __init__(self, config: AssistantConfig) -> None:
        super().__init__()
        assert config.num_centroids is not None
        self.chosen = config.chosen_centroids
        self.centroids = nn.Linear(config.hidden_size, config.num_centroids, bias=False)
        self.register_buffer("token_ordering", torch.arange(config.vocab_size))

    def forward(self, states: Tensor, head: Tensor) -> Tensor:
        """Returns scores `[rows, 1, vocab]` of the likeliest clusters' tokens behind `states [rows,
        1, hidden]`, by the LM head's rows `[vocab, hidden]`; see `far_below`."""
        best = self.centroids(states).topk(self.chosen).indices  # [rows, 1, chosen]
        clusters = self.token_ordering.view(self.centroids.out_features, -1)
        tokens = clusters[best].flatten(-2)  # [rows, 1, scored]
        scores = (head[tokens] @ states[..., None])[..., 0]
        return far_below(scores, len(head)).scatter_(-1, tokens, scores)


class AssistantModel(DraftModule):
    """Drafts a chain from the target's last state and its keys and values (Gemma 4's assistants).

    A step is given the embedding of the last token, as the target embeds it, and the state that the
    token was said from; the next one, its own state, projected to the target's width. Its queries
    read what the target has cached, of one layer for each kind. All steps of a draft stand at one
    position, that of the last committed token, and see the tokens before it.

    Tensors have the published names without `model.`; the embedding, which is the LM head, is
    `lm_head`.
    """

    kind, title = "assistant", "Gemma 4's assistant"
    methods = ("assistant",)
    config: AssistantConfig
    lm_head: nn.Linear

    def __init__(self, config: AssistantConfig) -> None:
        super().__init__(config)
        hidden, target = config.hidden_size, config.target_hidden_size
        self.pre_projection = nn.Linear(2 * target, hidden, bias=False)
        self.layers = nn.ModuleList(QueryLayer(config, kind) for kind in config.layer_types)
        self.norm = Gemma4RMSNorm(hidden, config.rms_norm_eps)
        self.post_projection = nn.Linear(hidden, target, bias=False)
        self.lm_head = nn.Linear(hidden, config.vocab_size, bias=False)
        self.masked_embedding = None if config.num_centroids is None else Centroids(config)

    @staticmethod
    def matches(config: Mapping[str, Any], names: set[str]) -> bool:
        return config.get("model_type") in TYPES

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        model = cls(AssistantConfig.of_layout(config, folder / CONFIG))
        weights = Weights.read(folder, cls.kind)
        # There is one LM head; an embedding beside it is ignored.
        embedding = weights.tensors.pop("embed_tokens.weight", None)
        if config.get("tie_word_embeddings", True) and embedding is not None:
            weights.tensors["lm_head.weight"] = embedding
        weights.fill(model)
        return model.eval()

    def rotations(self, positions: Tensor) -> dict[str, Rotation]:
        """Returns cosines and sines of `positions [rows]` by kind, each `[rows, 1, 1, dim]`."""
        made = {}
        for kind, dim in self.config.head_dims.items():
            speeds = frequencies(self.config.ropes[kind], dim).to(positions.device)
            angles = (positions.float()[:, None] * speeds).repeat(1, 2)[:, None, None]
            made[kind] = (angles.cos().to(self.dtype), angles.sin().to(self.dtype))
        return made

    def forward(
        self, embeds: Tensor, states: Tensor, rotations: Mapping[str, Rotation], attend: Attend
    ) -> tuple[Tensor, Tensor]:
        """Returns one step: the state to go on from, `[rows, 1, target hidden]`, and logits,
        `[rows, 1, vocab]`.

        Args:
            embeds: of the last token, `[rows, 1, target hidden]`.
            states: that it was said from, `[rows, 1, target hidden]`.
            rotations: of its position; see `rotations`.
            attend: reads the target's keys and values.
        """
        both = torch.cat([embeds, states], -1).to(self.device, self.dtype)
        inner = self.pre_projection(both)
        for layer, kind in zip(self.layers, self.config.layer_types, strict=True):
            inner = layer(inner, rotations[kind], attend)
        inner, head = self.norm(inner), self.lm_head
        clusters = self.masked_embedding
        logits = head(inner) if clusters is None else clusters(inner, head.weight)
        return self.post_projection(inner), logits

    def sources(self, adapter: Any) -> dict[str, int]:
        """Returns the target's layer whose keys and values each kind reads.

        Raises:
            SoonerError: it has none of a kind.
        """
        kinds = list(getattr(adapter.text_config, "layer_types", None) or [FULL] * adapter.layers)
        target_kinds = kinds[: adapter.layers]  # those behind share the keys of these
        for kind in self.config.head_dims:
            if kind not in target_kinds:
                known = "/".join(sorted(set(target_kinds)))
                raise SoonerError(
                    f"assistant reads the keys of a {kind} layer, but "
                    f"{type(adapter.model).__name__} has only {known}; give the target that it was "
                    "trained for"
                )
        return {
            kind: len(target_kinds) - 1 - target_kinds[::-1].index(kind)
            for kind in self.config.head_dims
        }

    def target_sizes(self, adapter: Any) -> dict[str, tuple[Any, Any]]:
        config = self.config
        sizes = {
            "hidden_size": (config.target_hidden_size, int(adapter.text_config.hidden_size)),
            "vocab_size": (config.vocab_size, adapter.vocab_size),
        }
        for kind, layer in self.sources(adapter).items():
            modules = getattr(adapter.decoder, "layers", None)
            attention = None if modules is None else getattr(modules[layer], "self_attn", None)
            dim = getattr(attention, "head_dim", None)  # `None` where a target does not tell
            sizes[f"head_dim of {kind} layers"] = (config.head_dims[kind], dim)
        return sizes


def frequencies(rope: Mapping[str, Any], dim: int) -> Tensor:
    """Angles a position, `[dim / 2]`; a *proportional* RoPE turns only the first ones."""
    speeds = 1.0 / float(rope["rope_theta"]) ** (torch.arange(0, dim, 2, dtype=torch.float) / dim)
    if rope["rope_type"] == "proportional":
        speeds[int(rope.get("partial_rotary_factor", 1.0) * dim // 2) :] = 0.0
    return speeds / float(rope.get("factor", 1.0))
