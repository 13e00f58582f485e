"""The tokenizer of clips: frames and blocks in their places, each from what came before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.worlds.motion import world
from sooner_miniatures.motion_tokenizer import MotionTokenizer, MotionTokenizerConfig
from worlds.clips import to_pixels


@pytest.fixture(scope="module")
def tokenizer() -> MotionTokenizer:
    torch.manual_seed(0)
    fresh = MotionTokenizer(MotionTokenizerConfig(channels=24, codes=64)).eval()
    with torch.no_grad():  # codes where a fresh encoder's latents are
        fresh.codebook.weight.mul_(0.2)
    return fresh


def test_nothing_hangs_on_later_frames(tokenizer: MotionTokenizer) -> None:
    frames = torch.from_numpy(np.stack([world.film(1, index)[1] for index in range(2)]))
    pixels = to_pixels(frames)
    codes = tokenizer.encode(pixels)
    assert codes.shape == (2, *tokenizer.config.latent_shape(world.FRAMES)) == (2, 9, 10, 12)
    assert codes.unique().numel() > 8
    painted = tokenizer.decode(codes)
    assert painted.shape == pixels.shape
    for length, latents in ((1, 1), (9, 3), (29, 8)):
        assert torch.equal(tokenizer.encode(pixels[:, :, :length]), codes[:, :latents])
        alone = tokenizer.decode(codes[:, :latents])
        torch.testing.assert_close(alone, painted[:, :, :length], rtol=0, atol=1e-5)
    other = pixels.clone()
    other[:, :, 9:] = -other[:, :, 9:]
    assert torch.equal(tokenizer.encode(other)[:, :3], codes[:, :3])
    # And what comes before does matter to the decoder.
    assert not torch.allclose(tokenizer.decode(codes[:, 1:])[:, :, 1:5], painted[:, :, 5:9])


def test_pixels_and_blocks_stay_in_place(tokenizer: MotionTokenizer) -> None:
    """A changed block changes its own code alone."""
    pixels = to_pixels(torch.from_numpy(world.film(1, 0)[1][None, :9]))
    latent = tokenizer.embed(pixels)
    other = pixels.clone()
    other[:, :, 5:9, 8:12, 20:24] *= -1  # latent frame 2, row 2, column 5
    moved = (tokenizer.embed(other) != latent).any(-1)[0].nonzero().tolist()
    assert moved == [[2, 2, 5]]


def test_wrong_clips_are_named(tokenizer: MotionTokenizer) -> None:
    with pytest.raises(SoonerError, match=r"10 frames.*1 \+ 4 \* n"):
        tokenizer.encode(torch.zeros(1, 3, 10, 40, 48))
    with pytest.raises(SoonerError, match=r"48 x 40 pixels.*scale them to 40 x 48"):
        tokenizer.encode(torch.zeros(1, 3, 9, 48, 40))
