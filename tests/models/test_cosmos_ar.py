"""Cosmos' model under the engine, and its published tokenizer, by tiny scripted modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.errors import SoonerError
from sooner.models.cosmos_ar.canvas import CosmosAR
from sooner.models.cosmos_ar.config import CosmosARConfig
from sooner.models.cosmos_ar.model import CosmosARForCausalLM
from sooner.models.cosmos_ar.tokenizer import PublishedTokenizer

SHAPE = (3, 4, 5)
TINY: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "latent_shape": SHAPE,
}
YARN = {"yarn_scale": 2.0, "original_latent_shape": (2, 3, 9)}
KINDS = [{}, {"apply_abs_pos_emb": True}, {"use_qk_norm": False, **YARN}]
CODES = torch.randint(0, 50, (3, 60), generator=torch.Generator().manual_seed(1))


def tiny(**changes: Any) -> CosmosARForCausalLM:
    """A random model whose attention really selects."""
    torch.manual_seed(0)
    model = CosmosARForCausalLM(CosmosARConfig(**{**TINY, **changes})).eval()
    for name, weights in model.named_parameters():
        scale = 0.25 if "embed" in name else 0.15
        weights.data.normal_(1.0 if weights.ndim == 1 else 0.0, scale)
    return model


def close(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", KINDS, ids=["base", "absolute", "yarn"])
@torch.no_grad()
def test_our_runner_equals_incremental_decoding_on_ragged_rows(kind: dict) -> None:
    model = tiny(**kind)
    lengths = [20, 27, 24]
    runner = prefilled(model, lengths)
    chain = runner.forward_chain(torch.stack([CODES[r, n : n + 6] for r, n in enumerate(lengths)]))
    for row, length in enumerate(lengths):
        full = model(CODES[row : row + 1, : length + 6]).logits[0]
        close(chain.logits[row], full[length:])
    runner.commit([[0, 1, 2], [0], [0, 1, 2, 3, 4]])
    roots = torch.stack([CODES[0, 23], CODES[1, 28], CODES[2, 29]])
    step = runner.forward_chain(roots[:, None]).logits[:, 0]
    for row, end in enumerate((24, 29, 30)):
        close(step[row], model(CODES[row : row + 1, :end]).logits[0, -1])


@torch.no_grad()
def test_every_path_of_a_token_tree_equals_its_sequence() -> None:
    model = tiny()
    tree = Tree.from_lists([[11, 12, 13, 14, 15]], [[-1, -1, 0, 0, 3]])
    runner = prefilled(model, [22])
    forward = runner.forward_tree(CODES[0, 22:23], tree)
    for path in ([], [0], [1], [0, 2], [0, 3], [0, 3, 4]):
        nodes = torch.tensor([11 + node for node in path], dtype=torch.long)
        whole = torch.cat([CODES[0, :23], nodes])[None]
        entry = path[-1] + 1 if path else 0
        close(forward.logits[0, entry], model(whole).logits[0, -1])


def prefilled(model: CosmosARForCausalLM, lengths: list[int]) -> ModelRunner:
    """A runner over prompts of these lengths, padded on the left."""
    adapter = CosmosAR(model)
    assert (adapter.latent_shape, adapter.max_positions, adapter.layers) == (SHAPE, 60, 3)
    width = max(lengths)
    ids, mask = torch.zeros(2, len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, width - length :] = CODES[row, :length]
        mask[row, width - length :] = 1
    prompt = adapter.embed_prompt({"input_ids": ids, "attention_mask": mask})
    runner = ModelRunner(adapter, width + 16)
    first = runner.prefill(prompt).logits[:, 0]
    for row, length in enumerate(lengths):
        close(first[row], model(CODES[row : row + 1, :length]).logits[0, -1])
    return runner


def test_what_does_not_fit_is_refused_in_a_single_line() -> None:
    model = tiny()
    with pytest.raises(SoonerError, match="either input_ids or inputs_embeds"):
        model()
    with pytest.raises(SoonerError, match="head_dim 7"):
        CosmosARConfig(**{**TINY, "head_dim": 7})
    with pytest.raises(SoonerError, match=r"latent_shape \[3, 4\]"):
        CosmosARConfig(**{**TINY, "latent_shape": [3, 4]})
    with pytest.raises(SoonerError, match="num_key_value_heads 3"):
        CosmosARConfig(**{**TINY, "num_key_value_heads": 3})


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
