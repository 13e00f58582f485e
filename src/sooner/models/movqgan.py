"""MoVQGAN's decoder, which makes pixels of Lumina-mGPT 2's codes.

Zheng et al. 2022 (MoVQ): every norm of the decoder is scaled and shifted by the codes themselves.
The layout is that of ai-forever's checkpoints, such as `movqgan_270M.ckpt`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional
from transformers.models.emu3.configuration_emu3 import Emu3VQVAEConfig
from transformers.models.emu3.modeling_emu3 import Emu3VQVAEDecoder

from .chameleon_files import VQGANDecoder, count, level_widths

NAMES = (
    (r"^mid\.attn_1\.norm\.", "middle_block.attn_norm."),
    (r"^up\.(\d+)\.attn\.(\d+)\.norm\.", r"up_block.up.\1.attn_norms.\2."),
    (r"^mid\.", "middle_block."),
    (r"^up\.", "up_block.up."),
    (r"(attn(?:_1|\.\d+))\.([qkv])\.", r"\1.\2_proj."),
    (r"(attn(?:_1|\.\d+))\.proj_out\.", r"\1.out_proj."),
)
"""Names in a checkpoint, and what stands in their places in transformers' Emu3."""


class MoVQGANDecoder(VQGANDecoder):
    """Decodes codes to pixels, with `movqgan_270M.ckpt` or a smaller one.

    Args:
        path: the checkpoint, or its `state_dict` as safetensors.
        device, dtype: where and how it runs.

    Raises:
        SoonerError: no such file, or not a MoVQGAN.
    """

    last_norm: ClassVar[str] = "decoder.norm_out.norm_layer.weight"
    advice: ClassVar[str] = "give the movqgan_270M.ckpt of MoVQGAN"

    def _empty(self, state: dict[str, Tensor]) -> nn.Module:
        widths = level_widths(state)
        levels = range(len(widths))
        config = Emu3VQVAEConfig(
            embed_dim=state["quantize.embedding.weight"].shape[1],
            latent_channels=state["decoder.conv_in.weight"].shape[1],
            out_channels=state["decoder.conv_out.weight"].shape[0],
            base_channels=1,
            channel_multiplier=widths,
            num_res_blocks=count(state, "decoder.up.0.block.") - 1,
            attn_resolutions=[i for i in levels if f"decoder.up.{i}.attn.0.q.weight" in state],
            hidden_size=widths[-1],
            num_attention_heads=1,
            temporal_downsample_factor=1,
        )
        config._attn_implementation = "sdpa"
        decoder = Emu3VQVAEDecoder(config)
        decoder.time_res_stack = nn.ModuleList()  # pictures have no time
        return decoder

    def _named(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        named = {}
        for name, tensor in state.items():
            for published, ours in NAMES:
                name = re.sub(published, ours, name)
            is_square = name.endswith("_proj.weight")  # published as a convolution
            named[name] = tensor.flatten(1) if is_square else tensor
        return named

    def _drawn(self, latents: Tensor) -> Tensor:
        decoder: Any = self.decoder
        states = decoder.conv_in(self.entry(latents))
        states = decoder.up_block(decoder.middle_block(states, latents), latents)
        drawn: Tensor = decoder.conv_out(functional.silu(decoder.norm_out(states, latents)))
        return drawn
