"""What an OpenVLA checkpoint says of itself, under the names that `transformers` uses."""

from __future__ import annotations

from typing import Any, ClassVar

from transformers import (
    Dinov2WithRegistersConfig,
    LlamaConfig,
    PreTrainedConfig,
    SiglipVisionConfig,
)

from ...errors import SoonerError


class OpenVLAConfig(PreTrainedConfig):
    """A policy that reads one picture and an instruction and says its action in tokens.

    Args:
        dino_config, siglip_config: the two towers. `num_hidden_layers` counts the blocks that run:
            the published features come from the last block but one, so the last is left out.
        text_config: the Llama decoder; its `vocab_size` is padded.
        pad_to_multiple_of: ids at the end of the vocabulary that mean nothing. Actions are the
            `n_action_bins` ids in front of them.
        n_action_bins: edges of the uniform grid over [-1, 1].
        action_horizon: actions that are said at once, one after the other; OpenVLA has 1.
        trailing_token_id: what every prompt ends in (Llama's lone space).
        image_token_id: placeholder of a patch in `input_ids`, behind the first token. It is never
            embedded; OpenVLA's own code has none and inserts the patches there.
        norm_stats: statistics of each data set by name, see `ActionStatistics`.
    """

    model_type: ClassVar[str] = "openvla"
    sub_configs: ClassVar[dict[str, Any]] = {
        "dino_config": Dinov2WithRegistersConfig,
        "siglip_config": SiglipVisionConfig,
        "text_config": LlamaConfig,
    }

    dino_config: Any = None
    siglip_config: Any = None
    text_config: Any = None
    pad_to_multiple_of: int = 64
    n_action_bins: int = 256
    action_horizon: int = 1
    trailing_token_id: int = 29_871
    image_token_id: int = 32_001
    norm_stats: dict[str, Any] | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        for name, kind in self.sub_configs.items():
            value = getattr(self, name)
            if not isinstance(value, PreTrainedConfig):
                setattr(self, name, kind(**(value or {})))
        dino, siglip = _patches(self.dino_config), self.siglip_patches
        if dino != siglip:
            raise SoonerError(
                f"the towers see {dino} and {siglip} patches; give them the same image and patch "
                "sizes"
            )
        super().__post_init__(**kwargs)

    @property
    def siglip_patches(self) -> int:
        return _patches(self.siglip_config)

    @property
    def image_size(self) -> int:
        """Returns the side of the square picture, in pixels."""
        return int(self.siglip_config.image_size)

    @property
    def action_vocab_size(self) -> int:
        """Ids without the padding; the last `n_action_bins` of them are actions."""
        return int(self.text_config.vocab_size) - self.pad_to_multiple_of


def _patches(config: Any) -> int:
    return (config.image_size // config.patch_size) ** 2
