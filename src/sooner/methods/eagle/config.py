"""The sizes of draft heads, the target they were trained for, and how they came about."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from transformers import LlamaConfig

from ...checks import check_keys, check_number
from ...errors import SoonerError
from ..published import CONFIG, layer_sizes, read_config, rope_theta
from ..target_print import fingerprint

KIND = "eagle_head"
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """Holds the sizes of one Llama layer, and where a head comes from.

    Attributes:
        hidden_size: width of the layer.
        intermediate_size: width of its MLP.
        num_attention_heads, num_key_value_heads, head_dim: of its attention.
        rms_norm_eps: of all norms.
        temperature: of its confidences under greedy decoding, fitted on held-out samples.
        target: fingerprint of the target (`target_print`), if sooner trained it.
        provenance: how it was trained, if sooner did it.

    Raises:
        SoonerError: sizes that do not fit together.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    temperature: float = 1.0
    target: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise SoonerError(
                f"draft head: num_attention_heads is {self.num_attention_heads}, no multiple of "
                f"num_key_value_heads, {self.num_key_value_heads}; give the config that was "
                "published with these weights"
            )
        if self.head_dim % 2:
            raise SoonerError(
                f"draft head: head_dim is {self.head_dim}; rotary positions need an even one"
            )
        check_number("draft head: temperature", self.temperature, 0, above=True)

    def _llama(self, **more: Any) -> LlamaConfig:
        return LlamaConfig(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            rms_norm_eps=self.rms_norm_eps,
            num_hidden_layers=1,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class EagleConfig(HeadConfig):
    """Holds one Llama layer of a target's width.

    Attributes:
        rope_theta: base of its positions, which count the tokens of a row.
    """

    rope_theta: float = 10_000.0

    def llama(self) -> LlamaConfig:
        """Returns the same sizes as transformers' Llama takes them."""
        return self._llama(rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta})

    @staticmethod
    def like(text_config: Any, target: dict[str, Any]) -> EagleConfig:
        """Returns a layer of the same shape as those of a target.

        Args:
            text_config: the target's, in transformers' names.
            target: its fingerprint.
        """
        sizes = layer_sizes(text_config, "the target's config")
        return EagleConfig(**sizes, rope_theta=rope_theta(text_config), target=target)

    def as_dict(self) -> dict[str, Any]:
        """Returns the content of `config.json`."""
        return {"model_type": KIND, **asdict(self)}

    @staticmethod
    def load(folder: Path) -> EagleConfig:
        """Read `config.json`.

        Raises:
            SoonerError: no such file, or not that of a head; an unknown or missing key.
        """
        raw, path = read_config(folder), folder / CONFIG
        if (kind := raw.pop("model_type", None)) != KIND:
            raise SoonerError(
                f"'{path}' is of model_type {kind!r}, a draft head is of '{KIND}'; give a folder "
                "that `sooner train draft` wrote"
            )
        check_keys(f"key of '{path}'", raw, EagleConfig)
        try:
            return EagleConfig(**raw)
        except TypeError as error:
            lacking = [item.name for item in fields(EagleConfig)[:5] if item.name not in raw]
            raise SoonerError(f"'{path}' lacks {', '.join(lacking)}; train the head anew") from (
                error
            )


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(HeadConfig):
    """What an EAGLE-3 head's config says that its computation depends on.

    Attributes:
        vocab_size: of the target that it was trained for.
        draft_vocab_size: tokens that it can draft; `None` without an LM head of its own.
        target_hidden_size: width of the target's states.
        layer_ids: `hidden_states` indices that it reads; `None` is EAGLE-3's own choice,
            2, n/2 and n - 3 of n layers.
        rope: transformers' `rope_parameters`; with `mrope_section`, positions are the target's.
        norm_before_residual: the residual is the normalised state.
        norm_before_fc: the target's states are normalised before `fc`.
        attention_bias, mlp_bias, fc_bias, qk_norm: what further weights it has.
        max_positions: of yarn and llama3 scaling.
    """

    vocab_size: int
    draft_vocab_size: int | None = None
    target_hidden_size: int = 0
    layer_ids: tuple[int, ...] | None = None
    rope: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default"})
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    fc_bias: bool = False
    qk_norm: bool = False
    max_positions: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        if (kind := self.rope.get("rope_type", "default")) not in ROPE_TYPES:
            raise SoonerError(
                f"EAGLE-3 head: rope_type is '{kind}', whose angles depend on the length; known: "
                f"{', '.join(ROPE_TYPES)}"
            )
        section = self.rope.get("mrope_section")
        if section is not None and 2 * sum(section) != self.head_dim:
            raise SoonerError(
                f"EAGLE-3 head: mrope_section {list(section)} adds up to {sum(section)}, half of "
                f"head_dim is {self.head_dim // 2}; give the config that was published"
            )

    @staticmethod
    def like(adapter: Any, layer_ids: tuple[int, ...], drafted: int | None = None) -> Eagle3Config:
        """Returns a head for a target, of the shape of its layers.

        Args:
            adapter: the target's.
            layer_ids: `hidden_states` indices to read.
            drafted: size of a reduced vocabulary.
        """
        sizes = layer_sizes(adapter.text_config, "the target's config")
        return Eagle3Config(
            **sizes,
            vocab_size=adapter.vocab_size,
            draft_vocab_size=drafted or adapter.vocab_size,
            target_hidden_size=sizes["hidden_size"],
            layer_ids=layer_ids,
            rope={"rope_type": "default", "rope_theta": rope_theta(adapter.text_config)},
            max_positions=int(adapter.max_positions or 2048),
            target=fingerprint(adapter),
        )

    def llama(self) -> LlamaConfig:
        """Returns the same sizes as transformers' Llama takes them."""
        known = ("rope_theta", "rope_type", "factor", "low_freq_factor", "high_freq_factor",
                 "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
                 "mscale", "mscale_all_dim", "truncate")  # fmt: skip
        rope = {name: value for name, value in self.rope.items() if name in known}
        return self._llama(
            max_position_embeddings=self.max_positions,
            mlp_bias=self.mlp_bias,
            rope_parameters={"rope_theta": 10_000.0, **rope},
        )
