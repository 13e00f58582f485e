"""VQGAN written out: random weights under the published names, and the decoder call by call."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def weights(
    codes: int, blocks: int, widths: tuple[int, ...], features: int, latent: int
) -> dict[str, Tensor]:
    """Random tensors under the names of `taming`'s VQGAN; levels count from the finest."""
    state: dict[str, Tensor] = {}

    def conv(name: str, out: int, into: int, side: int = 3) -> None:
        state[f"{name}.weight"] = torch.randn(out, into, side, side) / (into * side * side) ** 0.5
        state[f"{name}.bias"] = torch.randn(out) / 10

    def norm(name: str, size: int) -> None:
        state[f"{name}.weight"] = torch.rand(size) + 0.5
        state[f"{name}.bias"] = torch.randn(size) / 10

    def block(name: str, out: int, into: int) -> None:
        norm(f"{name}.norm1", into)
        conv(f"{name}.conv1", out, into)
        norm(f"{name}.norm2", out)
        conv(f"{name}.conv2", out, out)
        if out != into:
            conv(f"{name}.nin_shortcut", out, into, 1)

    def attention(name: str, size: int) -> None:
        norm(f"{name}.norm", size)
        for part in ("q", "k", "v", "proj_out"):
            conv(f"{name}.{part}", size, size, 1)

    state["quantize.embedding.weight"] = torch.randn(codes, features)
    conv("quant_conv", features, latent, 1)  # of the encoder, as the next one
    conv("encoder.conv_in", widths[0], 3)
    conv("post_quant_conv", latent, features, 1)
    width = widths[-1]
    conv("decoder.conv_in", width, latent)
    block("decoder.mid.block_1", width, width)
    attention("decoder.mid.attn_1", width)
    block("decoder.mid.block_2", width, width)
    for level in reversed(range(len(widths))):
        for number in range(blocks + 1):
            block(f"decoder.up.{level}.block.{number}", widths[level], width)
            width = widths[level]
        if level:
            conv(f"decoder.up.{level}.upsample.conv", width, width)
    norm("decoder.norm_out", width)
    conv("decoder.conv_out", 3, width)
    return state


def literal(state: dict[str, Tensor], codes: Tensor) -> Tensor:
    """The decoder, call by call; codes `[rows, height, width]`, unclamped pixels."""
    book = state["quantize.embedding.weight"]
    quantised = book[codes].permute(0, 3, 1, 2)

    def conv(name: str, x: Tensor) -> Tensor:
        weight = state[f"{name}.weight"]
        return functional.conv2d(x, weight, state[f"{name}.bias"], padding=weight.shape[-1] // 2)

    def norm(name: str, x: Tensor) -> Tensor:
        parts = (state[f"{name}.{part}"] for part in ("weight", "bias"))
        return functional.group_norm(x, 32, *parts, 1e-6)

    def block(name: str, x: Tensor) -> Tensor:
        h = conv(f"{name}.conv1", functional.silu(norm(f"{name}.norm1", x)))
        h = conv(f"{name}.conv2", functional.silu(norm(f"{name}.norm2", h)))
        short = f"{name}.nin_shortcut"
        return h + (conv(short, x) if f"{short}.weight" in state else x)

    def attend(name: str, x: Tensor) -> Tensor:
        h = norm(f"{name}.norm", x)
        q, k, v = (conv(f"{name}.{part}", h).flatten(2) for part in "qkv")  # [rows, width, places]
        shares = (q.transpose(1, 2) @ k * q.shape[1] ** -0.5).softmax(-1)
        return x + conv(f"{name}.proj_out", (v @ shares.transpose(1, 2)).view_as(x))

    x = conv("decoder.conv_in", conv("post_quant_conv", quantised))
    x = block("decoder.mid.block_1", x)
    x = block("decoder.mid.block_2", attend("decoder.mid.attn_1", x))
    levels = {int(name.split(".")[2]) for name in state if name.startswith("decoder.up.")}
    for level in sorted(levels, reverse=True):
        number = 0
        while f"decoder.up.{level}.block.{number}.conv1.weight" in state:
            x = block(f"decoder.up.{level}.block.{number}", x)
            number += 1
        if level:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = conv(f"decoder.up.{level}.upsample.conv", x)
    return conv("decoder.conv_out", functional.silu(norm("decoder.norm_out", x)))
