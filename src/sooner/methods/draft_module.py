"""What trained drafters of all kinds share: sizes, files, rotary positions, a target."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import rotate_half

from ..checks import check_choice, check_number, check_whole, field_types
from ..errors import SoonerError, UnsupportedError
from .published import CONFIG_KEY, MATCHING, Weights, needed, size_of, write
from .target_print import check_target, fingerprint

SIZES = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "rms_norm_eps",
)  # fmt: skip
"""Fields that transformers' configs of decoders have, too."""

Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """Holds the sizes of a drafter's decoder layers, and where the drafter comes from.

    Attributes:
        hidden_size, intermediate_size, num_attention_heads, num_key_value_heads, head_dim,
            rms_norm_eps, rope_parameters, max_position_embeddings: as transformers has them.
        vocab_size, target_hidden_size: of the target; `None` where the config does not tell.
        draft_vocab_size: rows of the drafter's LM head; `None` without one.
        temperature: of its confidences under greedy decoding, fitted on held-out samples.
        target: fingerprint of the target (`target_print`), if sooner trained it.
        provenance: how it was trained, if sooner did it.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_parameters: dict[str, Any] = field(
        default_factory=lambda: {"rope_type": "default", "rope_theta": 10_000.0}
    )
    max_position_embeddings: int = 40_960
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    target_hidden_size: int | None = None
    temperature: float = 1.0
    target: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, raw: Mapping[str, Any], where: Any) -> Self:
        """Returns the config that a mapping holds by the names of its fields.

        Sizes that follow from others may be missing, and older names of RoPE's settings are known.

        Args:
            raw: content of a config.json, with what its layout calls otherwise under our names.
            where: its path, for errors.

        Raises:
            SoonerError: a field is missing or out of range, or sizes don't fit each other.
        """
        values = {name: value for name, value in raw.items() if value is not None}
        heads, hidden = (
            size_of(raw, name, where) for name in ("num_attention_heads", "hidden_size")
        )
        derived = {
            "num_key_value_heads": heads, "head_dim": hidden // heads, "target_hidden_size": hidden,
        }  # fmt: skip
        values = {
            **derived,
            **values,
            **(raw.get(CONFIG_KEY) or {}),
            "rope_parameters": rope_parameters(raw),
        }
        for item in fields(cls):
            if item.default is MISSING and item.default_factory is MISSING:
                needed(values, item.name, where)
        kind: type = cls
        types = field_types(kind)
        names = [item.name for item in fields(cls) if item.name in values]
        for name in names:
            label, value = f"{name} in '{where}'", values[name]
            if types[name][0] is int:
                check_whole(label, value, int(name != "mask_token_id"), hint=MATCHING)
            elif types[name][0] is float:
                check_number(label, value, hint=MATCHING)
        kv_heads, dim = values["num_key_value_heads"], values["head_dim"]
        if heads % kv_heads or dim % 2:
            raise SoonerError(
                f"'{where}' has num_attention_heads {heads}, num_key_value_heads {kv_heads} and "
                f"head_dim {dim}; the first is a multiple of the second, the third even{MATCHING}"
            )
        return cls(**{name: types[name][0](values[name]) for name in names})

    @classmethod
    def like(cls, adapter: Any, **more: Any) -> Self:
        """Returns layers of the shape of a target's, whose positions count tokens, and `more`
        fields."""
        text = adapter.text_config.per_layer_config[0]
        rope = getattr(text, "rope_parameters", None) or {}
        if "target" not in more:
            more["target"] = fingerprint(adapter)
        raw = {
            **{name: getattr(text, name, None) for name in SIZES},
            "rope_theta": rope.get("rope_theta"),
            "max_position_embeddings": adapter.max_positions,
            "vocab_size": adapter.vocab_size,
            **more,
        }
        return cls.read(raw, "the target's config")

    def decoder(self, kind: str, **more: Any) -> dict[str, Any]:
        """Returns the sizes as a config.json of `model_type` `kind`, with the keys `more`."""
        rope = dict(self.rope_parameters)
        theta = rope.pop("rope_theta")
        return {
            "model_type": kind,
            "hidden_act": "silu",
            "num_hidden_layers": 1,
            **{name: getattr(self, name) for name in (*SIZES, "vocab_size")},
            "rope_theta": theta,
            "rope_scaling": None if rope == {"rope_type": "default"} else rope,
            "max_position_embeddings": self.max_position_embeddings,
            "tie_word_embeddings": False,
            **more,
        }

    def speculators(
        self, kind: str, tokens: int, decoder: Mapping[str, Any], **more: Any
    ) -> dict[str, Any]:
        """Returns config.json in the layout of speculators (0.9), which vLLM reads.

        Args:
            kind: `eagle3` or `dflash`.
            tokens: that are drafted in a step.
            decoder: config of the layers.
            more: keys of this kind.
        """
        verifier = self.provenance.get("verifier", {"name_or_path": None, "architectures": []})
        return {
            "speculators_model_type": kind,
            "speculators_config": {
                "algorithm": kind,
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": tokens}],
                "default_proposal_method": "greedy",
                "verifier": verifier,
            },
            "transformer_layer_config": dict(decoder),
            "draft_vocab_size": self.draft_vocab_size or self.vocab_size,
            "target_hidden_size": self.target_hidden_size or self.hidden_size,
            **more,
            CONFIG_KEY: saved_fields(self),
        }

    def as_transformers(self, kind: type, **more: Any) -> Any:
        """Returns the sizes as a config of transformers, of class `kind`."""
        rope = {
            name: value
            for name, value in self.rope_parameters.items()
            if not name.startswith("mrope")  # whose sections transformers' Llama does not know
        }
        return kind(
            **{name: getattr(self, name) for name in SIZES},
            rope_parameters=rope,
            max_position_embeddings=self.max_position_embeddings,
            **more,
        )


def saved_fields(config: Any) -> dict[str, Any]:
    """Returns what sooner adds to a published config.json: temperature, target, provenance, and
    whether a head sees pixels, if it does not."""
    names = ["temperature", "target", "provenance"]
    names += ["sees_pixels"] if not getattr(config, "sees_pixels", True) else []
    return {name: getattr(config, name) for name in names}


def rope_parameters(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns transformers' `rope_parameters`, also from the older `rope_theta` and
    `rope_scaling`."""
    rope = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    kind = rope.pop("type", None) or rope.get("rope_type") or "default"
    theta = float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    return {**rope, "rope_type": "default" if kind == "mrope" else kind, "rope_theta": theta}


def refuse(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse options of a `kind` of drafter that would change the numbers and are not computed
    here: `options` have whether its config says so, by what it says.

    Raises:
        UnsupportedError: names the first that it says.
    """
    for option, is_so in options.items():
        if is_so:
            raise UnsupportedError(f"{kind}: its config says {option}")


class DraftModule(nn.Module):
    """A trained drafter: what it is read from, whose drafts it makes, and where its tokens stand.

    Attributes:
        config: its sizes.
        kind, title: what it is called in errors, and among the kinds of drafters.
        methods: names of those that run it, the usual one first.
        head_dim: width of a head of its attention.
        rotary: transformers' module of its angles.
        embed_tokens, lm_head: its own; `None` is the target's.
        token_ids: what the target calls each token of its LM head, `[draft vocab]`; `None`: the
            same.
    """

    kind: ClassVar[str] = "draft head"
    title: ClassVar[str]
    methods: ClassVar[tuple[str, ...]] = ("eagle",)
    token_ids: Tensor | None

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.head_dim = config, int(getattr(config, "head_dim", 0))
        self.rotary: Any = None
        self.embed_tokens: nn.Embedding | None = None
        self.lm_head: nn.Linear | None = None
        self.register_buffer("token_ids", None, persistent=False)

    @staticmethod
    def matches(config: Mapping[str, Any], names: set[str]) -> bool:
        """Returns whether a folder holds such a drafter, by its config.json and the `names` of its
        tensors."""
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        """Returns the drafter of a folder in eval mode, fp32; `config` is its config.json.

        Raises:
            SoonerError: unknown, missing or misshapen keys or tensors, by name.
            UnsupportedError: an option of the layout that can't be run.
        """
        raise NotImplementedError

    def published(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns config.json and tensors as SGLang reads them, or as the target's checkpoint."""
        raise NotImplementedError

    def speculators(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns config.json and tensors in the layout of speculators.

        Raises:
            UnsupportedError: it has none for this kind, or for an option of this drafter.
        """
        raise UnsupportedError(f"{self.title}: speculators has no layout for it; write 'sglang'")

    def save_pretrained(self, folder: Path | str, layout: str = "sglang") -> None:
        """Write `config.json` and `model.safetensors`, each whole or not at all.

        Raises:
            SoonerError: an unknown layout, or one that can't tell what this drafter computes.
        """
        check_choice("layout", layout, ("sglang", "speculators"))
        write(Path(folder), *(self.published() if layout == "sglang" else self.speculators()))

    def take_tables(self, weights: Weights) -> None:
        """Have the embedding, LM head and reduced vocabulary that files bring.

        Raises:
            SoonerError: a vocabulary whose parts don't fit together.
        """
        config, tensors = self.config, weights.tensors
        drafted = config.draft_vocab_size
        if (table := tensors.get("embed_tokens.weight")) is not None:
            self.embed_tokens = nn.Embedding(len(table), config.hidden_size)
        if (table := tensors.get("lm_head.weight")) is not None:
            drafted = drafted or len(table)
            self.lm_head = nn.Linear(config.hidden_size, drafted, bias=False)
        if drafted := drafted or config.vocab_size:
            ids = weights.take_vocabulary(drafted, config.vocab_size)
            self.token_ids = self.token_ids if ids is None else ids

    def with_provenance(self, provenance: dict[str, Any], temperature: float = 1.0) -> Self:
        """Returns this drafter, whose config says how it came about, and how sure it may be."""
        self.config = replace(self.config, provenance=provenance, temperature=temperature)
        return self

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def slot_bytes(self) -> int:
        """Returns bytes of a token's keys and values in all layers."""
        widths = [
            module.out_features
            for name, module in self.named_modules()
            if name.endswith(("k_proj", "v_proj"))
        ]
        return sum(widths) * self.dtype.itemsize

    def placed(self, target: Any) -> Self:
        """Returns this drafter where a target is, and in its dtype; a copy if it has to move."""
        if (self.device, self.dtype) == (target.device, target.dtype):
            return self
        return copy.deepcopy(self).to(target.device, target.dtype)

    def target_sizes(self, adapter: Any) -> dict[str, tuple[Any, Any]]:
        """Returns what the drafter expects and what a target has, by name."""
        config, width = self.config, int(adapter.text_config.hidden_size)
        sizes = {"hidden_size": (config.target_hidden_size or config.hidden_size, width)}
        if self.embed_tokens is None or self.lm_head is None:
            sizes["width of embedding and head"] = (config.hidden_size, width)
        return sizes

    def check(self, adapter: Any) -> None:
        """Refuse a target that this drafter was not trained for, as far as its config tells.

        Raises:
            SoonerError: names what differs.
            UnsupportedError: a target that does not tell.
        """
        for name, (expected, actual) in self.target_sizes(adapter).items():
            if expected != actual:
                raise SoonerError(
                    f"{self.kind} was trained for a target with {name} {expected}, but "
                    f"{type(adapter.model).__name__} has {actual}; give that target"
                )
        if self.config.target:
            check_target(self.config.target, adapter)

    def rotation(self, positions: Tensor) -> Rotation:
        """Returns cosines and sines `[rows or 1, 1, entries, dim]` of `[rows or 1, entries]`."""
        cos, sin = self.rotary(next(self.parameters()), positions)
        return cos[:, None], sin[:, None]

    def _split(self, states: Tensor) -> Tensor:
        """Returns `[rows, entries, heads * head_dim]` as `[rows, heads, entries, head_dim]`."""
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        frequencies = None if self.rotary is None else self.rotary.inv_freq
        moved = super()._apply(fn, recurse)
        if frequencies is not None:
            # Angles of far positions need fp32, whatever the weights are in.
            self.rotary.inv_freq = frequencies.to(moved.device)
        return moved


def rotated(states: Tensor, rotation: Rotation) -> Tensor:
    """Returns queries or keys `[rows, heads, entries, head_dim]` turned by angles of positions."""
    cos, sin = rotation
    return states * cos + rotate_half(states) * sin


def whole_vocabulary(logits: Tensor, ids: Tensor, vocab: int) -> Tensor:
    """Returns logits `[..., vocab]` of those of the tokens `ids`; others have minus infinity."""
    whole = logits.new_full((*logits.shape[:-1], vocab), -torch.inf)
    return whole.index_copy(-1, ids.to(logits.device), logits)


def far_below(scores: Tensor, vocab: int) -> Tensor:
    """Returns scores `[..., vocab]` 10,000 below the lowest of `scores [..., scored]`: such tokens
    are never drawn, but if a processor forbids all others, something is left to draft."""
    lowest = scores.amin(-1, keepdim=True) - 1e4
    return lowest.expand(*lowest.shape[:-1], vocab).clone()
