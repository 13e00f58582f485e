"""MoVQGAN's decoder against itself written out, from files as they were published."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import tiny_canvas as tiny
from movqgan_reference import FEATURES, literal, weights
from sooner.models.movqgan import MoVQGANDecoder


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
