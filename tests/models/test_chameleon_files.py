"""Published files: norms saved once a shard, Meta's VQGAN and MoVQGAN against literal decoders."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import sooner
import tiny_canvas as tiny
from movqgan_reference import FEATURES, literal, weights
from sooner.errors import SoonerError
from sooner.models.chameleon_files import VQGANDecoder, load_lumina
from sooner.models.movqgan import MoVQGANDecoder

CODES = 24


@torch.no_grad()
def test_norms_of_a_shard_become_norms_of_its_heads(tmp_path: Path) -> None:
    model = copy.deepcopy(tiny.chameleon())
    for name, parameter in model.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            shards = torch.randn(2, parameter.shape[1])
            parameter.copy_(shards.repeat_interleave(parameter.shape[0] // 2, 0))
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
    """Tensors of Meta's VQGAN, small."""
    return weights(CODES, 1, widths=(32, 32, 64), features=8, latent=32, looks=False)


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


@pytest.mark.parametrize("name", ["movqgan_270M.ckpt", "wrapped.ckpt", "movqgan_270M.safetensors"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_movqgan_decodes_as_published(name: str, blocks: int, tmp_path: Path) -> None:
    torch.manual_seed(blocks)
    state, file = weights(tiny.CODES, blocks), tmp_path / name
    if file.suffix == ".safetensors":
        save_file(state, file)
    else:  # ai-forever's files are the bare state, those of its trainer hold more
        torch.save({"state_dict": state, "epoch": 3} if name == "wrapped.ckpt" else state, file)
    decoder = MoVQGANDecoder(file)
    codes = torch.randint(0, tiny.CODES, (2, 4, 6))
    pixels = decoder.decode(codes)
    assert pixels.shape == (2, 3, 32, 48)  # 8 pixels a code
    expected = literal(state, codes)
    assert expected.std() > 0.1
    torch.testing.assert_close(pixels, expected.clamp(-1, 1), atol=1e-4, rtol=1e-4)
    assert decoder.codebook.shape == (tiny.CODES, FEATURES)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="no VQGAN at"):
        VQGANDecoder(tmp_path / "vqgan.ckpt")
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(SoonerError, match=r"has no quantize\.embedding\.weight"):
        VQGANDecoder(tmp_path / "other.safetensors")
    torch.save({"state_dict": {}, "callbacks": object()}, tmp_path / "run.ckpt")
    with pytest.raises(SoonerError, match="holds more than tensors"):
        VQGANDecoder(tmp_path / "run.ckpt")
