"""Published files: norms saved once a shard, and Meta's VQGAN against its decoder written out."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

import sooner
import tiny_canvas as tiny
from sooner.errors import SoonerError
from sooner.models.chameleon_files import VQGANDecoder, load_lumina

WIDTHS, CODES, LATENT, FEATURES = (32, 32, 64), 24, 32, 8


@torch.no_grad()
def test_norms_of_a_shard_become_norms_of_its_heads(tmp_path: Path) -> None:
    model = copy.deepcopy(tiny.chameleon())
    for name, weights in model.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            shards = torch.randn(2, weights.shape[1])
            weights.copy_(shards.repeat_interleave(weights.shape[0] // 2, 0))
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    for name, tensor in state.items():
        if ".q_norm." in name or ".k_norm." in name:
            state[name] = tensor[:: tensor.shape[0] // 2].contiguous()
    assert state["model.layers.0.self_attn.q_norm.weight"].shape[0] == 2
    save_file(state, file, metadata={"format": "pt"})
    ids = torch.randint(4, 64, (2, 9))
    loaded = load_lumina(tmp_path)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert load_lumina(tmp_path, torch.bfloat16).dtype == torch.bfloat16
    assert sooner.canvas(loaded, layout="lumina", height=32, width=32).grid.length == 7
    with pytest.raises(SoonerError, match="no safetensors in"):
        load_lumina(tmp_path / "nowhere")


def vqgan() -> dict[str, Tensor]:
    """Random tensors under the names of `taming`'s VQGAN; levels count from the finest."""
    state: dict[str, Tensor] = {}

    def conv(name: str, out: int, into: int, side: int = 3) -> None:
        state[f"{name}.weight"] = torch.randn(out, into, side, side) / (into * side * side) ** 0.5
        state[f"{name}.bias"] = torch.randn(out) / 10

    def norm(name: str, size: int) -> None:
        state[f"{name}.weight"], state[f"{name}.bias"] = torch.rand(size) + 0.5, torch.randn(size)

    def block(name: str, out: int, into: int) -> None:
        norm(f"{name}.norm1", into)
        conv(f"{name}.conv1", out, into)
        norm(f"{name}.norm2", out)
        conv(f"{name}.conv2", out, out)
        if out != into:
            conv(f"{name}.nin_shortcut", out, into, 1)

    state["quantize.embedding.weight"] = torch.randn(CODES, FEATURES)
    conv("post_quant_conv", LATENT, FEATURES, 1)
    conv("quant_conv", FEATURES, LATENT, 1)  # of the encoder, which is left aside
    width = WIDTHS[-1]
    conv("decoder.conv_in", width, LATENT)
    block("decoder.mid.block_1", width, width)
    block("decoder.mid.block_2", width, width)
    norm("decoder.mid.attn_1.norm", width)
    for part in ("q", "k", "v", "proj_out"):
        conv(f"decoder.mid.attn_1.{part}", width, width, 1)
    for level in reversed(range(len(WIDTHS))):
        for number in range(2):
            block(f"decoder.up.{level}.block.{number}", WIDTHS[level], width)
            width = WIDTHS[level]
        if level:
            conv(f"decoder.up.{level}.upsample.conv", width, width)
    norm("decoder.norm_out", width)
    conv("decoder.conv_out", 3, width)
    return state


def literal(state: dict[str, Tensor], codes: Tensor) -> Tensor:
    """The decoder as `taming` runs it, call by call."""

    def conv(name: str, x: Tensor) -> Tensor:
        weight = state[f"{name}.weight"]
        return functional.conv2d(x, weight, state[f"{name}.bias"], padding=weight.shape[-1] // 2)

    def norm(name: str, x: Tensor) -> Tensor:
        return functional.group_norm(x, 32, state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)

    def block(name: str, x: Tensor) -> Tensor:
        h = conv(f"{name}.conv1", functional.silu(norm(f"{name}.norm1", x)))
        h = conv(f"{name}.conv2", functional.silu(norm(f"{name}.norm2", h)))
        short = f"{name}.nin_shortcut"
        return h + (conv(short, x) if f"{short}.weight" in state else x)

    def attend(name: str, x: Tensor) -> Tensor:
        h = norm(f"{name}.norm", x)
        q, k, v = (conv(f"{name}.{part}", h).flatten(2) for part in "qkv")  # [rows, width, places]
        shares = (q.transpose(1, 2) @ k * q.shape[1] ** -0.5).softmax(-1)
        mixed = (v @ shares.transpose(1, 2)).view_as(x)
        return x + conv(f"{name}.proj_out", mixed)

    x = state["quantize.embedding.weight"][codes].permute(0, 3, 1, 2)
    x = conv("decoder.conv_in", conv("post_quant_conv", x))
    x = block("decoder.mid.block_1", x)
    x = block("decoder.mid.block_2", attend("decoder.mid.attn_1", x))
    for level in reversed(range(len(WIDTHS))):
        for number in range(2):
            x = block(f"decoder.up.{level}.block.{number}", x)
        if level:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = conv(f"decoder.up.{level}.upsample.conv", x)
    return conv("decoder.conv_out", functional.silu(norm("decoder.norm_out", x)))


@pytest.mark.parametrize("name", ["vqgan.ckpt", "vqgan.safetensors"])
def test_the_vqgan_decodes_as_taming_does(name: str, tmp_path: Path) -> None:
    state, file = vqgan(), tmp_path / name
    if file.suffix == ".ckpt":
        torch.save({"state_dict": state, "epoch": 3}, file)
    else:
        save_file(state, file)
    codes = torch.randint(0, CODES, (2, 4, 6))
    decoder = VQGANDecoder(file)
    expected = literal(state, codes)
    assert expected.std() > 0.1
    torch.testing.assert_close(decoder.decode(codes), expected.clamp(-1, 1), atol=1e-4, rtol=1e-4)
    canvas = sooner.canvas(tiny.chameleon(), layout="lumina", height=64, width=96, decoder=decoder)
    numbers = torch.tensor(tiny.SCRAMBLED)
    assert torch.equal(canvas.codebook, state["quantize.embedding.weight"][numbers])
    tokens = sooner.draw(canvas, tiny.inputs("lumina", 2), seed=0).tokens
    pixels = canvas.pixels(tokens)
    assert pixels.shape == (2, 1, 16, 24, 3)
    assert 0 <= pixels.min() < pixels.max() <= 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="no VQGAN at"):
        VQGANDecoder(tmp_path / "vqgan.ckpt")
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(SoonerError, match=r"has no quantize\.embedding\.weight"):
        VQGANDecoder(tmp_path / "other.safetensors")
    torch.save({"state_dict": {}, "callbacks": object()}, tmp_path / "run.ckpt")
    with pytest.raises(SoonerError, match="holds more than tensors"):
        VQGANDecoder(tmp_path / "run.ckpt")
