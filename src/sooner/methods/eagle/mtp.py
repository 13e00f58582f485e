"""Native multi-token prediction (MTP): the layer that a checkpoint brings to draft for itself."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from ...errors import SoonerError, UnsupportedError
from ...models.checkpoint import tensor_files
from ..draft_module import Rotation, saved_fields
from ..published import CONFIG, CONFIG_KEY, Weights, renamed
from ..target_print import fingerprint
from .head import DraftHead

FAMILIES = ("glm_ocr_text", "llama", "qwen2", "qwen3", "qwen3_5_moe_text", "qwen3_5_text")
"""Types of text models whose decoder layers are computed here, as `MtpHead.estimate` has it."""


@dataclass(frozen=True)
class Layout:
    """Holds the names of an MTP layer's tensors.

    Attributes:
        prefixes: what may stand in front of all of them; `{n}` is the target's number of layers.
        renames: pairs of what a name begins with behind the prefix, and `MtpHead`'s; that of `fc`
            is the first.
        depth: key of the config that tells how many layers there are.
        goes_on_normed: the next token is drafted from the state behind `norm`, not before it.
        copies: of the target's embedding and LM head, which are passed over.
    """

    prefixes: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    depth: str
    goes_on_normed: bool
    copies: tuple[str, ...] = ()


QWEN = Layout(
    ("mtp.", "model.mtp."),
    (
        ("fc.", "fc."),
        ("pre_fc_norm_embedding.", "embed_norm."),
        ("pre_fc_norm_hidden.", "hidden_norm."),
        ("norm.", "norm."),
        ("layers.0.", "layer."),
    ),
    "mtp_num_hidden_layers",
    goes_on_normed=True,
)
"""Qwen3.5's, as vLLM's `qwen3_5_mtp` reads it."""

GLM = Layout(
    ("model.language_model.layers.{n}.", "model.layers.{n}."),
    (
        ("eh_proj.", "fc."),
        ("enorm.", "embed_norm."),
        ("hnorm.", "hidden_norm."),
        ("shared_head.norm.", "norm."),
        ("", "layer."),
    ),
    "num_nextn_predict_layers",
    goes_on_normed=False,
    copies=("shared_head.head.weight", "embed_tokens.weight"),
)
"""GLM-OCR's, as vLLM's `glm_ocr_mtp` reads it: DeepSeek-V3's names."""


def find_layout(config: Mapping[str, Any], names: Iterable[str]) -> tuple[Layout, str] | None:
    """How a checkpoint holds an MTP layer, and the prefix of its tensors; `None` without one."""
    layers, present = (config.get("text_config") or config).get("num_hidden_layers"), set(names)
    for layout in (QWEN, GLM):
        for prefix in (pattern.format(n=layers) for pattern in layout.prefixes):
            if f"{prefix}{layout.renames[0][0]}weight" in present:
                return layout, prefix
    return None


@dataclass(frozen=True)
class MtpConfig:
    """What an MTP layer's computation depends on.

    Attributes:
        model: transformers' config of the target.
        layout: what its tensors are called, and which of its states it goes on from.
        temperature, target, provenance: as of `DraftConfig`.

    Raises:
        UnsupportedError: a family whose layers aren't computed here.
    """

    model: Any
    layout: Layout
    temperature: float = 1.0
    target: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (kind := self.text.model_type) not in FAMILIES:
            raise UnsupportedError(
                f"MTP layer of a '{kind}': layers of this family aren't computed here (known: "
                f"{', '.join(FAMILIES)}); it takes a look at what its layer adds, scales and norms"
            )

    @property
    def text(self) -> Any:
        """Returns transformers' config of the target's text model."""
        return self.model.get_text_config()


class MtpHead(DraftHead):
    """Holds the MTP layer of a target's own checkpoint (DeepSeek-V3, Liu et al. 2024, section 2.2).

    An entry is the target's state after its last norm with the embedding of the token behind it;
    `fc([norm(embedding); norm(state)])` enters a decoder layer of the target's own kind. Embedding
    and LM head are the target's. One layer drafts many tokens: it goes on from its own state,
    before its norm (GLM) or behind it (Qwen), as `MtpConfig.layout` says.
    """

    kind, title = "MTP layer", "native MTP"
    config: MtpConfig

    def __init__(self, config: MtpConfig) -> None:
        super().__init__(config)
        text = config.text
        stack = _single_layer(text)
        self.layer = stack.layers[0].to_empty(device="cpu")
        self.head_dim = int(self.layer.self_attn.head_dim)
        norm, hidden = type(stack.norm), int(text.hidden_size)
        self.embed_norm = norm(hidden, eps=text.rms_norm_eps)
        self.hidden_norm = norm(hidden, eps=text.rms_norm_eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.norm = norm(hidden, eps=text.rms_norm_eps)
        self.rotary = type(stack.rotary_emb)(config=text)  # its angles are no weights
        self._turn = sys.modules[type(self.layer).__module__].apply_rotary_pos_emb
        # What sooner trains counts tokens, whatever the target does.
        self.wants_positions = "mrope_section" in (text.rope_parameters or {}) and not config.target
        kinds = getattr(text, "layer_types", None) or ()
        if any("attention" not in kind or kind == "linear_attention" for kind in kinds):
            self.default_top_k = 1  # layers that keep a state take chains
        attention, width = self.layer.self_attn, text.num_attention_heads * self.head_dim
        if attention.q_proj.out_features == 2 * width:
            # Qwen3.5: a head's queries lie before its gates; `load` parts them.
            bias = attention.q_proj.bias is not None
            attention.q_proj = nn.Linear(hidden, width, bias=bias)
            attention.gate_proj = nn.Linear(hidden, width, bias=bias)

    @staticmethod
    def like(adapter: Any) -> MtpHead:
        """Returns a head in Qwen's layout that copies a state until it is trained."""
        model = copy.deepcopy(adapter.model.config)
        head = MtpHead(MtpConfig(model, QWEN, target=fingerprint(adapter)))
        hidden = head.fc.out_features
        with torch.no_grad():
            for name, value in head.named_parameters():
                if value.ndim > 1:
                    nn.init.normal_(value, std=0.02)
                elif "norm" not in name:
                    nn.init.zeros_(value)
                if name.removesuffix(".weight").endswith(("o_proj", "down_proj")):
                    nn.init.zeros_(value)  # what they add
            unit = float(type(head.norm)(1).weight)
            for module in head.modules():
                if isinstance(module, type(head.norm)):
                    nn.init.constant_(module.weight, unit)  # none scales yet
            head.fc.weight[:, hidden:].copy_(torch.eye(hidden))
        return head

    @staticmethod
    def matches(config: Mapping[str, Any], names: set[str]) -> bool:
        """Returns whether a folder holds an MTP layer, or tensors that are called so."""
        is_known = find_layout(config, names) is not None
        return is_known or any(name.startswith("mtp.") for name in names)

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        """Returns the MTP layer of a target's checkpoint; nothing else is read of it."""
        files = tensor_files(folder)
        match = find_layout(config, files)
        if match is None:
            first = min(name for name in files if name.startswith("mtp."))
            raise UnsupportedError(
                f"'{folder}' has tensors of an MTP layer ('{first}') in a layout that isn't known; "
                "it takes a `Layout` with its names: 'mtp.fc.weight' (Qwen) and 'eh_proj.weight' "
                "of a layer behind all others (GLM) are read"
            )
        layout, prefix = match
        depth = (config.get("text_config") or config).get(layout.depth, 1)
        second = f"{prefix}layers.1."
        if depth not in (None, 1) or any(name.startswith(second) for name in files):
            raise UnsupportedError(
                f"'{folder}' has several MTP layers ({layout.depth} {depth}), each for one token "
                "ahead; one layer that goes on from its own state is run. It takes a cache for each"
            )
        model = _model_config(folder, config)
        head = cls(MtpConfig(model, layout, **(config.get(CONFIG_KEY) or {})))
        weights = Weights.read(folder, cls.kind, layout.renames, prefix, layout.copies)
        if hasattr(head.layer.self_attn, "gate_proj"):
            _part_gates(weights, head.head_dim)
        weights.fill(head)
        return head.eval()

    def published(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns config.json, the target's, and the tensors of the layer alone."""
        layout, tensors = self.config.layout, dict(self.state_dict())
        for name in [name for name in tensors if ".self_attn.gate_proj." in name]:
            query = name.replace("gate_proj", "q_proj")
            pair = (tensors[query], tensors.pop(name))
            split = [weight.unflatten(0, (-1, self.head_dim)) for weight in pair]
            tensors[query] = torch.cat(split, 1).flatten(0, 1)
        prefix = layout.prefixes[0].format(n=self.config.text.num_hidden_layers)
        back = [(ours, published) for published, ours in layout.renames]
        named = {prefix + renamed(name, back): value for name, value in tensors.items()}
        return {**self.config.model.to_diff_dict(), CONFIG_KEY: saved_fields(self.config)}, named

    def target_sizes(self, adapter: Any) -> dict[str, tuple[Any, Any]]:
        mine, other = self.config.text, adapter.text_config
        names = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")
        return {name: (getattr(mine, name), getattr(other, name)) for name in names}

    def placed(self, target: Any) -> Self:
        head = super().placed(target)
        if (experts := getattr(head.layer.mlp, "experts", None)) is not None:
            # As the target's, since not each is there for every dtype.
            kind = getattr(target.text_config, "_experts_implementation", None)
            experts.config._experts_implementation = kind
        return head

    def rotation(self, positions: Tensor) -> Rotation:
        if positions.ndim == 3 and positions.shape[0] > 3:
            positions = positions[-3:]  # some versions put the text's own in front
        return super().rotation(positions)

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        embeds, states = embeds.to(self.dtype), states.to(self.dtype)
        return self.fc(torch.cat([self.embed_norm(embeds), self.hidden_norm(states)], -1))

    def attention_input(self, fused: Tensor) -> Any:
        return self.layer.input_layernorm(fused)

    def turned(self, states: Tensor, rotation: Rotation) -> Any:
        cos, sin = (part[:, 0] for part in rotation)
        return self._turn(states, states[:, :0], cos, sin)[0]

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        layer, flat = self.layer, attended.transpose(1, 2).flatten(2)
        if hasattr(layer.self_attn, "gate_proj"):
            flat = flat * layer.self_attn.gate_proj(self.attention_input(fused)).sigmoid()
        mixed = layer.self_attn.o_proj(flat)
        if hasattr(layer, "post_self_attn_layernorm"):
            mixed = layer.post_self_attn_layernorm(mixed)
        states = fused + mixed
        made = layer.mlp(layer.post_attention_layernorm(states))
        if hasattr(layer, "post_mlp_layernorm"):
            made = layer.post_mlp_layernorm(made)
        states = states + made
        return self.norm(states) if self.config.layout.goes_on_normed else states

    def scores(self, states: Tensor, adapter: Any) -> Tensor:
        normed = states if self.config.layout.goes_on_normed else self.norm(states)
        return super().scores(normed, adapter)


def _single_layer(text: Any) -> Any:
    """A text model of one attention layer and no weights, of a config's own class."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    small = copy.deepcopy(text)
    small.num_hidden_layers, small.vocab_size, small.pad_token_id = 1, 1, None
    if getattr(text, "layer_types", None):
        small.layer_types = ["full_attention"]
    model: Any = MODEL_MAPPING[type(text)]
    with torch.device("meta"):
        return model(small)


def _model_config(folder: Path, config: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    fields = {name: config[name] for name in config if name not in (CONFIG_KEY, "model_type")}
    try:
        return AutoConfig.for_model(str(config.get("model_type")), **fields)
    except (ValueError, TypeError, KeyError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SoonerError(
            f"'{folder / CONFIG}' is no config that transformers knows, which an MTP layer "
            f"needs: {reason}"
        ) from error


def _part_gates(weights: Weights, head_dim: int) -> None:
    """Part a published `q_proj` into queries and gates, which lie head by head."""
    for kind in ("weight", "bias"):
        name = f"layer.self_attn.q_proj.{kind}"
        value = weights.tensors.get(name)
        if value is None or len(value) % (2 * head_dim):
            continue  # `fill` names what does not fit
        split = value.unflatten(0, (-1, 2, head_dim))
        for at, part in enumerate(("q_proj", "gate_proj")):
            weights.tensors[name.replace("q_proj", part)] = split[:, at].flatten(0, 1)
