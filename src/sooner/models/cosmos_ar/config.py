"""The sizes of a Cosmos autoregressive model, under the names that `transformers` uses."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from ...engine.interface import CACHE_NAMES
from ...errors import SoonerError


class CosmosARConfig(PreTrainedConfig):
    """A decoder over the codes of one video clip; the defaults are Cosmos-1.0-Autoregressive-4B.

    Args:
        vocab_size: codes; 64,000 are FSQ levels 8 x 8 x 8 x 5 x 5 x 5.
        latent_shape: codes of a clip, (frames, height, width); their raster orders the tokens.
        head_dim: even; `hidden_size // num_attention_heads` when left out.
        use_qk_norm: RMS-normalise queries and keys, head by head, before they are rotated.
        apply_abs_pos_emb: add sinusoids of (frame, height, width) to the input of every layer. The
            published base models don't; only the text-conditioned ones do.
        yarn_scale: stretch RoPE (YaRN) by this factor, from `original_latent_shape`; `None` leaves
            it as it is. The 12B model has 2.
        yarn_beta_fast, yarn_beta_slow: turns within the original shape above which a frequency
            stays, and below which it is divided by `yarn_scale`.

    Raises:
        SoonerError: sizes that do not fit together; says which.
    """

    model_type: ClassVar[str] = "cosmos_ar"
    keys_to_ignore_at_inference: ClassVar[list[str]] = list(CACHE_NAMES)

    vocab_size: int = 64_000
    hidden_size: int = 4096
    intermediate_size: int = 14_336
    num_hidden_layers: int = 16
    num_attention_heads: int = 32
    num_key_value_heads: int | None = 8
    head_dim: int | None = None
    latent_shape: tuple[int, int, int] = (5, 40, 64)
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500_000.0
    use_qk_norm: bool = True
    apply_abs_pos_emb: bool = False
    yarn_scale: float | None = None
    yarn_beta_fast: float = 4.0
    yarn_beta_slow: float = 1.0
    original_latent_shape: tuple[int, int, int] = (3, 40, 64)
    hidden_act: str = "silu"
    attention_bias: bool = False
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        self.latent_shape = _box("latent_shape", self.latent_shape)
        self.original_latent_shape = _box("original_latent_shape", self.original_latent_shape)
        if self.head_dim % 2 or self.head_dim < 6:
            raise SoonerError(
                f"head_dim {self.head_dim} can't be split over frame, height and width; "
                "give an even one of at least 6"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise SoonerError(
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_key_value_heads {self.num_key_value_heads}; give one that is"
            )
        super().__post_init__(**kwargs)

    @property
    def max_position_embeddings(self) -> int:
        """Returns the tokens of the whole clip."""
        return math.prod(self.latent_shape)


def _box(name: str, value: Any) -> tuple[int, int, int]:
    """`value` as (frames, height, width); JSON knows no tuples."""
    shape = tuple(int(side) for side in value)
    if len(shape) != 3 or min(shape) < 1:
        raise SoonerError(f"{name} {list(value)} is no (frames, height, width); give three sides")
    return shape
