"""The published tokenizer's files, stood in for by tiny scripted modules of the same signature."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sooner.errors import SoonerError
from sooner.models.cosmos_ar.tokenizer import PublishedTokenizer

HALF, PLACE = [4, 4, 4, 2, 2, 2], [1, 8, 64, 512, 2560, 12_800]


class Encoder(nn.Module):
    """Returns as codes what the first channel shows in the corner of each block of pixels.

    Its own ids are wrong on purpose: the published pipeline works them out from the codes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first = pixels[:, 0:1, 0:1, ::16, ::16]
        later = pixels[:, 0:1, 1::8, ::16, ::16]
        # A pixel tells a digit of 5 levels; the higher ones are its neighbours' in turn.
        digits = torch.cat([first, later], 2) * self.scale
        codes = torch.cat([digits.roll(shift, 4) for shift in range(6)], 1)
        return torch.full_like(digits[:, 0], -1), codes, torch.zeros(1)


class Decoder(nn.Module):
    """Shows the lowest digit as brightness; too bright, so that clamping shows."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, ids: Tensor) -> Tensor:
        brightness = ((ids % 8) - 4).to(self.scale.dtype)[:, None] / 2
        brightness = brightness.repeat_interleave(16, 3).repeat_interleave(16, 4)
        frames = torch.cat([brightness[:, :, :1], brightness[:, :, 1:].repeat_interleave(8, 2)], 2)
        return frames.repeat(1, 3, 1, 1, 1)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    encoder, decoder = tmp_path / "encoder.jit", tmp_path / "decoder.jit"
    torch.jit.script(Encoder()).save(encoder)
    torch.jit.script(Decoder()).save(decoder)
    return encoder, decoder


def clips(rows: int = 3) -> tuple[Tensor, Tensor]:
    """Pixels `[rows, 3, 17, 32, 48]` and the halves -1, -0.5 .. 0.5 in the corners of blocks."""
    halves = torch.randint(-2, 2, (rows, 3, 2, 3)) / 2  # [rows, t, h, w]
    frames = torch.cat([halves[:, :1], halves[:, 1:].repeat_interleave(8, 1)], 1)
    pixels = torch.zeros(rows, 3, 17, 32, 48)
    pixels[:, 0, :, ::16, ::16] = frames
    return pixels, halves


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_ids_count_the_levels_with_the_first_lowest(
    files: tuple[Path, Path], dtype: torch.dtype
) -> None:
    tokenizer = PublishedTokenizer(*files, dtype=dtype, rows_at_once=2)
    pixels, halves = clips()
    codes = tokenizer.encode(pixels)
    assert codes.dtype == torch.int64
    assert codes.shape == (3, 3, 2, 3)
    for row, t, h, w in [(0, 0, 0, 0), (1, 2, 1, 2), (2, 1, 0, 1)]:
        digits = [halves[row, t, h, (w - shift) % 3] for shift in range(6)]
        expected = sum(
            int(digit * half + half) * place
            for digit, half, place in zip(digits, HALF, PLACE, strict=True)
        )
        assert codes[row, t, h, w] == expected
    assert int(codes.max()) < 64_000


def test_decoded_pixels_have_the_shape_and_range_of_a_clip(files: tuple[Path, Path]) -> None:
    tokenizer = PublishedTokenizer(*files, rows_at_once=2)
    codes = torch.arange(3 * 3 * 2 * 3).view(3, 3, 2, 3)
    pixels = tokenizer.decode(codes)
    assert pixels.shape == (3, 3, 17, 32, 48)
    assert pixels.dtype == torch.float32
    expected = ((codes % 8 - 4) / 2).clamp(-1, 1)
    assert torch.equal(pixels[:, 1, [0, 1, 9], 8::16, 8::16], expected)


def test_what_cannot_be_tokenized_is_refused(files: tuple[Path, Path]) -> None:
    tokenizer = PublishedTokenizer(*files)
    with pytest.raises(SoonerError, match=r"pixels are \[3, 17, 32, 48\]"):
        tokenizer.encode(torch.zeros(3, 17, 32, 48))
    with pytest.raises(SoonerError, match="16 frames, 32 x 48"):
        tokenizer.encode(torch.zeros(1, 3, 16, 32, 48))
    with pytest.raises(SoonerError, match="17 frames, 32 x 40"):
        tokenizer.encode(torch.zeros(1, 3, 17, 32, 40))
    with pytest.raises(SoonerError, match=r"codes are \[2, 3\]"):
        tokenizer.decode(torch.zeros(2, 3))
    with pytest.raises(SoonerError, match=r"encoder.jit and decoder.jit"):
        PublishedTokenizer(files[0], files[1].with_name("none.jit"))
