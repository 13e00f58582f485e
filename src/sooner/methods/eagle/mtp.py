"""Native multi-token prediction (MTP): the layer that a checkpoint brings to draft for itself."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import SoonerError, UnsupportedError
from ..published import CONFIG, CONFIG_KEY, Weights, renamed, tensor_files, write
from .base import DraftHead, Rotation, check_sizes
from .published import FIELDS, sooner_fields
from ..target_print import fingerprint

FAMILIES = ("glm_ocr_text", "llama", "qwen2", "qwen3", "qwen3_5_moe_text", "qwen3_5_text")
"""Types of text models whose decoder layers are computed here, as `MtpHead.estimate` has it."""


@dataclass(frozen=True)
class Layout:
    """Holds the names of an MTP layer's tensors.

    Attributes:
        prefixes: what may stand in front of all of them; `{n}` is the target's number of layers.
        fc, embed_norm, hidden_norm, norm: of the parts around the decoder layer.
        layer: in front of the decoder layer's.
        goes_on_normed: the next token is drafted from the state behind `norm`, not before it.
        copies: of the target's embedding and LM head, which are passed over.
    """

    prefixes: tuple[str, ...]
    fc: str
    embed_norm: str
    hidden_norm: str
    norm: str
    layer: str
    goes_on_normed: bool
    copies: tuple[str, ...] = ()

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """Returns pairs of what a published name begins with behind the prefix, and `MtpHead`'s."""
        return ((f"{self.fc}.", "fc."), (f"{self.embed_norm}.", "embed_norm."),
                (f"{self.hidden_norm}.", "hidden_norm."), (f"{self.norm}.", "norm."),
                (self.layer, "layer."))  # fmt: skip


QWEN = Layout(
    prefixes=("mtp.", "model.mtp."),
    fc="fc",
    embed_norm="pre_fc_norm_embedding",
    hidden_norm="pre_fc_norm_hidden",
    norm="norm",
    layer="layers.0.",
    goes_on_normed=True,
)
"""Qwen3.5's, as vLLM's `qwen3_5_mtp` reads it."""

GLM = Layout(
    prefixes=("model.language_model.layers.{n}.", "model.layers.{n}."),
    fc="eh_proj",
    embed_norm="enorm",
    hidden_norm="hnorm",
    norm="shared_head.norm",
    layer="",
    goes_on_normed=False,
    copies=("shared_head.head.weight", "embed_tokens.weight"),
)
"""GLM-OCR's, as vLLM's `glm_ocr_mtp` reads it: DeepSeek-V3's names."""


def find_layout(config: Mapping[str, Any], names: Iterable[str]) -> tuple[Layout, str] | None:
    """How a checkpoint holds an MTP layer, and the prefix of its tensors; `None` without one.

    Args:
        config: its config.json.
        names: of its tensors.
    """
    layers = (config.get("text_config") or config).get("num_hidden_layers")
    present = set(names)
    for layout in (QWEN, GLM):
        for prefix in layout.prefixes:
            prefix = prefix.format(n=layers)
            if f"{prefix}{layout.fc}.weight" in present:
                return layout, prefix
    return None


def is_mtp(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether a folder holds an MTP layer, or tensors that are called so."""
    present = set(names)
    return find_layout(config, present) is not None or any(
        name.startswith("mtp.") for name in present
    )


@dataclass(frozen=True)
class MtpConfig:
    """What an MTP layer's computation depends on.

    Attributes:
        model: transformers' config of the target.
        layout: what its tensors are called, and which of its states it goes on from.
        temperature: of its confidences under greedy decoding.
        target: fingerprint of the target (`target_print`), if sooner trained it.
        provenance: how it was trained, if sooner did it.

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

    @property
    def num_key_value_heads(self) -> int:
        return int(self.text.num_key_value_heads)

    @property
    def head_dim(self) -> int:
        text = self.text
        head_dim = getattr(text, "head_dim", None)
        return int(head_dim or text.hidden_size // text.num_attention_heads)

    @property
    def keeps_state(self) -> bool:
        """Whether layers of the target keep a state, so that its drafts have to be chains."""
        kinds = getattr(self.text, "layer_types", None) or ()
        return any("attention" not in kind or kind == "linear_attention" for kind in kinds)


class MtpHead(DraftHead):
    """Holds the MTP layer of a target's own checkpoint (DeepSeek-V3, Liu et al. 2024, section 2.2).

    An entry is the target's state after its last norm with the embedding of the token behind it;
    `fc([norm(embedding); norm(state)])` enters a decoder layer of the target's own kind. Embedding
    and LM head are the target's. One layer drafts many tokens: it goes on from its own state,
    before its norm (GLM) or behind it (Qwen), as `MtpConfig.layout` says.

    Args:
        config: the target's, and the layout.
    """

    config: MtpConfig

    def __init__(self, config: MtpConfig) -> None:
        super().__init__()
        text = config.text
        self.config = config
        self.heads, self.kv_heads = int(text.num_attention_heads), config.num_key_value_heads
        self.head_dim = config.head_dim
        stack = _single_layer(text)
        self.layer: Any = stack.layers[0].to_empty(device="cpu")
        norm, hidden = type(stack.norm), int(text.hidden_size)
        self.embed_norm = norm(hidden, eps=text.rms_norm_eps)
        self.hidden_norm = norm(hidden, eps=text.rms_norm_eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.norm = norm(hidden, eps=text.rms_norm_eps)
        self.rotary = type(stack.rotary_emb)(config=text)  # its angles are no weights
        self._turn = sys.modules[type(self.layer).__module__].apply_rotary_pos_emb
        # What sooner trains counts tokens, whatever the target does.
        self.wants_positions = "mrope_section" in (text.rope_parameters or {}) and not config.target
        if self.attention.q_proj.out_features == 2 * self.heads * self.head_dim:
            # Qwen3.5: a head's queries lie before its gates; `load_mtp` parts them.
            bias = self.attention.q_proj.bias is not None
            self.attention.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=bias)
            self.attention.gate_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=bias)

    @staticmethod
    def like(adapter: Any) -> MtpHead:
        """A head for a target in Qwen's layout, that copies a state until it is trained.

        Args:
            adapter: the target's.
        """
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
            norm = type(head.norm)(1).weight
            module: Any
            for module in head.modules():
                if type(module) is type(head.norm):
                    nn.init.constant_(module.weight, float(norm))  # neither scales yet
            head.fc.weight[:, hidden:].copy_(torch.eye(hidden))
        return head

    @property
    def attention(self) -> Any:
        return self.layer.self_attn

    @property
    def default_top_k(self) -> int:
        return 1 if self.config.keeps_state else super().default_top_k

    def check(self, adapter: Any) -> None:
        super().check(adapter)
        mine, other = self.config.text, adapter.text_config
        names = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")
        sizes = {name: (getattr(mine, name), getattr(other, name)) for name in names}
        check_sizes("MTP layer", adapter, sizes)

    def placed(self, target: Any) -> DraftHead:
        head: Any = super().placed(target)
        if (experts := getattr(head.layer.mlp, "experts", None)) is not None:
            # As the target's, since not each is there for every dtype.
            kind = getattr(target.text_config, "_experts_implementation", None)
            experts.config._experts_implementation = kind
        return head

    def save_pretrained(self, folder: Path | str, dtype: torch.dtype | None = None) -> None:
        """Write `config.json`, the target's, and `model.safetensors` with the layer alone."""
        layout, tensors = self.config.layout, dict(self.state_dict())
        for name in [name for name in tensors if ".self_attn.gate_proj." in name]:
            query = name.replace("gate_proj", "q_proj")
            pair = [tensors[query], tensors.pop(name)]
            split = [weight.unflatten(0, (self.heads, self.head_dim)) for weight in pair]
            tensors[query] = torch.cat(split, 1).flatten(0, 1)
        prefix = layout.prefixes[0].format(n=self.config.text.num_hidden_layers)
        back = [(ours, published) for published, ours in layout.renames]
        named = {prefix + renamed(name, back): value for name, value in tensors.items()}
        fields = {name: getattr(self.config, name) for name in FIELDS}
        write(folder, {**self.config.model.to_diff_dict(), CONFIG_KEY: fields}, named, dtype)

    def rotation(self, positions: Tensor) -> Rotation:
        """Returns rotations, also of positions by axis, `[axes, rows, entries]`."""
        if positions.ndim == 3 and positions.shape[0] > 3:
            positions = positions[-3:]  # some versions put the text's own in front
        return super().rotation(positions)

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        """What enters the layer, `[rows, entries, hidden]`, as both arguments."""
        embeds, states = embeds.to(self.dtype), states.to(self.dtype)
        return self.fc(torch.cat([self.embed_norm(embeds), self.hidden_norm(states)], -1))

    def attention_input(self, fused: Tensor) -> Tensor:
        normed: Tensor = self.layer.input_layernorm(fused)
        return normed

    def turned(self, states: Tensor, rotation: Rotation) -> Tensor:
        cos, sin = (part[:, 0] for part in rotation)
        turned: Tensor = self._turn(states, states[:, :0], cos, sin)[0]
        return turned

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        layer, flat = self.layer, attended.transpose(1, 2).flatten(2)
        if hasattr(self.attention, "gate_proj"):
            flat = flat * self.attention.gate_proj(self.attention_input(fused)).sigmoid()
        mixed = self.attention.o_proj(flat)
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
    with torch.device("meta"):
        made: Any = MODEL_MAPPING[type(text)]
        return made(small)


def load_mtp(folder: Path, config: Mapping[str, Any]) -> MtpHead:
    """The MTP layer of a target's checkpoint, in eval mode, fp32; nothing else is read of it.

    Args:
        folder: of the checkpoint.
        config: its config.json.

    Raises:
        SoonerError: unknown, missing or misshapen tensors, by name.
        UnsupportedError: a family, a number of layers or a layout that isn't run.
    """
    files = tensor_files(folder)
    match = find_layout(config, files)
    if match is None:
        first = min(name for name in files if name.startswith("mtp."))
        raise UnsupportedError(
            f"'{folder}' has tensors of an MTP layer ('{first}') in a layout that isn't known; it "
            "takes a `Layout` with its names: 'mtp.fc.weight' (Qwen) and 'eh_proj.weight' of a "
            "layer behind all others (GLM) are read"
        )
    layout, prefix = match
    _check_depth(
        folder, layout, any(name.startswith(f"{prefix}layers.1.") for name in files), config
    )
    model = _model_config(folder, config)
    head = MtpHead(MtpConfig(model, layout, **sooner_fields(config)))
    weights = Weights.read(folder, "MTP layer", layout.renames, prefix, layout.copies)
    if hasattr(head.attention, "gate_proj"):
        _part_gates(weights, head)
    weights.fill(head)
    return head.eval()


def _model_config(folder: Path, config: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        fields = {
            name: value for name, value in config.items() if name not in (CONFIG_KEY, "model_type")
        }
        return AutoConfig.for_model(str(config.get("model_type")), **fields)
    except (ValueError, TypeError, KeyError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SoonerError(
            f"'{folder / CONFIG}' is no config that transformers knows, which an MTP layer "
            f"needs: {reason}"
        ) from error


def _check_depth(folder: Path, layout: Layout, has_more: bool, config: Mapping[str, Any]) -> None:
    """Refuse several MTP layers behind each other."""
    text = config.get("text_config") or config
    name = "mtp_num_hidden_layers" if layout is QWEN else "num_nextn_predict_layers"
    depth = text.get(name, 1)
    if depth not in (None, 1) or has_more:
        raise UnsupportedError(
            f"'{folder}' has several MTP layers ({name} {depth}), each for one token ahead; one "
            "layer that goes on from its own state is run. It takes a cache for each"
        )


def _part_gates(weights: Weights, head: MtpHead) -> None:
    """Part a published `q_proj` into queries and gates, which lie head by head."""
    for kind in ("weight", "bias"):
        name = f"layer.self_attn.q_proj.{kind}"
        if (value := weights.tensors.get(name)) is None:
            continue
        rows = 2 * head.heads * head.head_dim
        if len(value) != rows:
            raise SoonerError(
                f"'{weights.sources[name]}' has {len(value)} rows, by its config.json it must have "
                f"{rows}; give files that were published together"
            )
        split = value.unflatten(0, (head.heads, 2, head.head_dim))
        for at, part in enumerate(("q_proj", "gate_proj")):
            weights.tensors[name.replace("q_proj", part)] = split[:, at].flatten(0, 1)
