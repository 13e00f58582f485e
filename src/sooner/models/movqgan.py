"""MoVQGAN's decoder, which makes pixels of Lumina-mGPT 2's codes.

Zheng et al. 2022 (MoVQ): every norm of the decoder is scaled and shifted by the codes themselves.
The layout is that of ai-forever's checkpoints, such as `movqgan_270M.ckpt`.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional
from transformers.models.emu3.modeling_emu3 import (
    Emu3VQVAEEncoderConvUpsample,
    Emu3VQVAEResnetBlock,
    Emu3VQVAESpatialNorm,
)

from .chameleon_files import VQGANDecoder, count, level_widths


class MoVQGANDecoder(VQGANDecoder):
    """Decodes codes to pixels, with `movqgan_270M.ckpt` or a smaller one.

    Args:
        path: the checkpoint, or its `state_dict` as safetensors.
        device, dtype: where and how it runs.

    Raises:
        SoonerError: no such file, or not a MoVQGAN.
    """

    needed: ClassVar[tuple[str, ...]] = (
        "quantize.embedding.weight",
        "post_quant_conv.weight",
        "decoder.conv_in.weight",
        "decoder.norm_out.norm_layer.weight",
    )
    advice: ClassVar[str] = "give the movqgan_270M.ckpt of MoVQGAN"

    def _empty(self, state: dict[str, Tensor]) -> nn.Module:
        return MoVQDecoder(state)

    def _named(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return state

    def _drawn(self, latents: Tensor) -> Tensor:
        return self.decoder(self.entry(latents), latents)


class MoVQDecoder(nn.Module):
    """The network; its sizes are those of a checkpoint's tensors, its names theirs."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        features = state["quantize.embedding.weight"].shape[1]
        widths = level_widths(state)
        width = widths[-1]
        self.conv_in = nn.Conv2d(state["decoder.conv_in.weight"].shape[1], width, 3, padding=1)
        self.mid = nn.ModuleDict(
            {
                "block_1": Emu3VQVAEResnetBlock(width, width, features),
                "attn_1": _Attention(width, features),
                "block_2": Emu3VQVAEResnetBlock(width, width, features),
            }
        )
        levels: list[nn.Module] = []
        for level in reversed(range(len(widths))):
            prefix = f"decoder.up.{level}"
            attends = f"{prefix}.attn.0.q.weight" in state
            blocks = count(state, f"{prefix}.block.")
            levels.insert(0, _Level(width, widths[level], features, blocks, attends, level > 0))
            width = widths[level]
        self.up = nn.ModuleList(levels)
        self.norm_out = Emu3VQVAESpatialNorm(features, width)
        self.conv_out = nn.Conv2d(width, state["decoder.conv_out.weight"].shape[0], 3, padding=1)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        """Returns pixels `[rows, 3, 8 height, 8 width]` (with four levels).

        Args:
            x: what `post_quant_conv` made of the codes, `[rows, latent, height, width]`.
            codes: their entries of the codebook, `[rows, features, height, width]`.
        """
        x = self.conv_in(x)
        for name in ("block_1", "attn_1", "block_2"):
            x = self.mid[name](x, codes)
        for level in reversed(self.up):
            x = level(x, codes)
        return self.conv_out(functional.silu(self.norm_out(x, codes)))


class _Level(nn.Module):
    def __init__(
        self, into: int, width: int, features: int, blocks: int, attends: bool, grows: bool
    ) -> None:
        super().__init__()
        self.block = nn.ModuleList(
            Emu3VQVAEResnetBlock(into if not place else width, width, features)
            for place in range(blocks)
        )
        self.attn = nn.ModuleList(_Attention(width, features) for _ in range(blocks * attends))
        self.upsample = Emu3VQVAEEncoderConvUpsample(width) if grows else None

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        for place, block in enumerate(self.block):
            x = block(x, codes)
            if self.attn:
                x = self.attn[place](x, codes)
        return x if self.upsample is None else self.upsample(x)


class _Attention(nn.Module):
    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.norm = Emu3VQVAESpatialNorm(features, width)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        h = self.norm(x, codes)
        q, k, v = (part(h).flatten(2).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v)  # [rows, places, width]
        return x + self.proj_out(mixed.transpose(1, 2).reshape(x.shape))
