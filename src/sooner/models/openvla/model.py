"""OpenVLA on today's transformers: two towers, a projector and Llama, each of them HF's own.

The towers are transformers' own embeddings and encoders without final norm and head, which the
policy never had: it reads the states behind the last block but one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, LlamaForCausalLM, LlamaModel, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.dinov2_with_registers import modeling_dinov2_with_registers as dino
from transformers.models.dinov2_with_registers.modeling_dinov2_with_registers import (
    Dinov2WithRegistersEmbeddings,
    Dinov2WithRegistersEncoder,
)
from transformers.models.siglip.modeling_siglip import SiglipEncoder, SiglipVisionEmbeddings

from ...engine.interface import CACHE, CACHE_NAMES, takes_either_name
from ...errors import SoonerError
from .config import OpenVLAConfig

# The projections of DINOv2's attention, as older versions of transformers name them and newer ones.
_FORMER = ("attention.query", "attention.key", "attention.value", "output.dense")
_PRESENT = ("q_proj", "k_proj", "v_proj", "o_proj")
DINO_PROJECTIONS = _FORMER if hasattr(dino, "Dinov2WithRegistersSelfAttention") else _PRESENT
"""Query, key, value and output inside of a block's `attention`, in the installed transformers."""


def renamed_projections() -> dict[str, str]:
    """From the names that the other transformers gives DINOv2's projections to the installed one's.

    A policy saved under one is so read under the other.
    """
    other = _PRESENT if DINO_PROJECTIONS == _FORMER else _FORMER
    return {
        f"attention.{source}": f"attention.{ours}"
        for source, ours in zip(other, DINO_PROJECTIONS, strict=True)
    }


class FusedProjector(nn.Module):
    """Maps both towers' features of a patch to one token of the decoder."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__()
        width = config.dino_config.hidden_size + config.siglip_config.hidden_size
        hidden = config.text_config.hidden_size
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, hidden)
        self.fc3 = nn.Linear(hidden, hidden)
        self.act = nn.GELU()

    def forward(self, features: Tensor) -> Tensor:
        """Maps `[rows, patches, dino + siglip]` to `[rows, patches, hidden]`."""
        return self.fc3(self.act(self.fc2(self.act(self.fc1(features)))))


class VisionBackbone(nn.Module):
    """Maps the picture to the features of its patches: DINOv2's with registers, of pixels in
    ImageNet's normalisation, and SigLIP's, of pixels in [-1, 1]."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__()
        dino, siglip = config.dino_config, config.siglip_config
        if siglip._attn_implementation is None:  # only a whole model would set it
            siglip._attn_implementation = "sdpa"
        self.prefix = 1 + dino.num_register_tokens
        embeddings, encoder = Dinov2WithRegistersEmbeddings(dino), Dinov2WithRegistersEncoder(dino)
        self.featurizer = nn.ModuleDict({"embeddings": embeddings, "encoder": encoder})
        parts = {"embeddings": SiglipVisionEmbeddings(siglip), "encoder": SiglipEncoder(siglip)}
        self.fused_featurizer = nn.ModuleDict(parts)

    def forward(self, pixels: Tensor) -> Tensor:
        """Maps `[rows, 6, side, side]` to `[rows, patches, dino + siglip]`."""
        towers = self.featurizer, self.fused_featurizer
        dino, siglip = (
            tower["encoder"](tower["embeddings"](part)).last_hidden_state
            for tower, part in zip(towers, pixels.split(3, 1), strict=True)
        )
        return torch.cat([dino[:, self.prefix :], siglip], dim=-1)


class OpenVLAPreTrainedModel(PreTrainedModel):
    """Says how the models are loaded, saved and initialised."""

    config: OpenVLAConfig
    config_class = OpenVLAConfig
    base_model_prefix = "model"
    input_modalities = ["image", "text"]  # noqa: RUF012
    _no_split_modules = [  # noqa: RUF012  # transformers reads it off the class
        "LlamaDecoderLayer",
        "Dinov2WithRegistersLayer",
        "SiglipEncoderLayer",
    ]
    _skip_keys_device_placement = list(CACHE_NAMES)  # noqa: RUF012
    _supports_sdpa = True
    _supports_attention_backend = True

    @classmethod
    def from_pretrained(cls, *args: Any, key_mapping: Any = None, **kwargs: Any) -> Any:
        """Loads a model as transformers does, also one that another of its versions saved."""
        mapping = renamed_projections() if key_mapping is None else key_mapping
        made: Any = super()
        return made.from_pretrained(*args, key_mapping=mapping, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The towers' embeddings are HF's, but their own models, which would start them, are not
        here; without this a loaded policy would lack SigLIP's position numbers."""
        super()._init_weights(module)
        if isinstance(module, SiglipVisionEmbeddings):
            init.copy_(module.position_ids, torch.arange(module.num_positions)[None])
            init.normal_(module.position_embedding.weight, std=module.embed_dim**-0.5)
        if isinstance(module, Dinov2WithRegistersEmbeddings):
            for table in (module.position_embeddings, module.cls_token, module.register_tokens):
                init.trunc_normal_(table, std=0.02)


class OpenVLAModel(OpenVLAPreTrainedModel):
    """The policy that has no head yet: patches take the place of their placeholders."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__(config)
        self.vision_backbone = VisionBackbone(config)
        self.projector = FusedProjector(config)
        self.language_model = LlamaModel(config.text_config)
        self.post_init()

    def see(self, pixel_values: Tensor) -> Tensor:
        """Maps pixels `[pictures, 6, side, side]` to tokens `[pictures, patches, hidden]`."""
        dtype = self.projector.fc1.weight.dtype
        return self.projector(self.vision_backbone(pixel_values.to(dtype)))

    @takes_either_name
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Run the policy's body.

        Args:
            input_ids: `[rows, entries]`, with `image_token_id` for every patch.
            pixel_values: `[rows, 6, side, side]`: DINOv2's channels, then SigLIP's.
            inputs_embeds: `[rows, entries, hidden]` instead of both.

        Raises:
            SoonerError: placeholders and patches do not match.
        """
        if inputs_embeds is None:
            if input_ids is None:
                raise SoonerError("OpenVLA takes either input_ids or inputs_embeds; give one")
            inputs_embeds = self._embed(input_ids, pixel_values)
        return self.language_model(
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            use_cache=use_cache,
            **{CACHE: cache},
            **kwargs,
        )

    def _embed(self, input_ids: Tensor, pixel_values: Tensor | None) -> Tensor:
        placeholders = input_ids == self.config.image_token_id  # [rows, entries]
        # The placeholder may lie outside of the vocabulary.
        embeds = self.get_input_embeddings()(input_ids.masked_fill(placeholders, 0))
        if pixel_values is None:
            return embeds
        patches = self.see(pixel_values).flatten(0, 1)  # [rows * patches, hidden]
        if int(placeholders.sum()) != len(patches):
            raise SoonerError(
                f"OpenVLA: {int(placeholders.sum())} placeholders and {len(patches)} patches do "
                "not match; give this model its own processed inputs"
            )
        return embeds.masked_scatter(placeholders[..., None], patches.to(embeds.dtype))


class OpenVLAForActionPrediction(OpenVLAPreTrainedModel, GenerationMixin):
    """The policy: it says an action as `action_horizon` times as many tokens as it has axes."""

    def __init__(self, config: OpenVLAConfig) -> None:
        super().__init__(config)
        self.model = OpenVLAModel(config)
        width, vocab = config.text_config.hidden_size, config.text_config.vocab_size
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.post_init()

    def get_decoder(self) -> nn.Module:
        return self.model.language_model

    forward: Any = LlamaForCausalLM.forward  # pixels are among its further arguments

    def prepare_inputs_for_generation(
        self,
        input_ids: Any,
        *args: Any,
        pixel_values: Tensor | None = None,
        is_first_iteration: bool | None = False,
        **kwargs: Any,
    ) -> Any:
        """Puts the pixels into the first step alone; later ones read the cache."""
        made: Any = super()
        prepared = made.prepare_inputs_for_generation(
            input_ids, *args, is_first_iteration=is_first_iteration, **kwargs
        )
        if is_first_iteration or not kwargs.get("use_cache", True):
            prepared["pixel_values"] = pixel_values
        return prepared
