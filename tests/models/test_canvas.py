"""Canvases beside their drawing, and published files of their decoders."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import canvas_reference as reference
import sooner
import tiny_canvas as tiny
from sooner.errors import SoonerError
from sooner.models import CANVASES, FAMILIES, Sampling
from sooner.models.canvas import rows_of
from sooner.models.chameleon_files import VQGANDecoder, load_lumina
from vqgan_reference import literal, weights


class Echo:
    """A decoder whose pixels tell the code: code / 100, every side doubled."""

    def decode(self, codes: Tensor) -> Tensor:
        pixels = (codes / 100).repeat_interleave(2, -1).repeat_interleave(2, -2)
        return torch.stack([pixels] * 3, 1)


def spans(family: str, rows: int = 2) -> tuple[Tensor, Tensor]:
    """Random spans of a family's canvas, and their ids' codes counted from the lowest."""
    grid = tiny.canvas(family).grid
    tokens = torch.randint(*grid.codes, (rows, grid.length))
    prefix = torch.randint(0, grid.codes[1], (rows, grid.prefix))
    for place, ids in enumerate(reference.allowed(family)):
        if len(ids) == 1:
            tokens[:, grid.prefix + place] = ids[0]
    tokens[:, : grid.prefix] = prefix
    return tokens, grid.pick_codes(tokens)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_grids_are_those_of_the_published_layouts(family: str) -> None:
    shapes = {
        "janus": (1, 4, 4),
        "chameleon": (1, 4, 4),
        "lumina": (1, 4, 6),
        "emu3": (1, 3, 5),
        "cosmos_ar": (3, 3, 4),
    }
    grid = tiny.canvas(family).grid
    assert (grid.frames, grid.height, grid.width) == shapes[family]
    assert grid.left == len(list(reference.allowed(family)))


def test_published_ids_stand_at_their_places() -> None:
    """The real vocabularies, as far as published code states their numbers."""
    config = copy.copy(tiny.chameleon())
    names = {f"IMGIMG{tiny._letters(code)}Z": 4 + code for code in range(8192)}
    names |= {f"<reserved{n:05d}>": 4 + n for n in range(8706, 8900)}
    names |= {"<s>": 0, "<eoss>": 8196, "<racm3:break>": 8197, "<image>": 8711}
    model = copy.deepcopy(config)
    model.config.vocabulary_map = names
    canvas = sooner.canvas(model, layout="lumina", height=768, width=512)
    assert canvas.opening == (8197, 8804 + 24, 8804 + 16)
    assert canvas.grid.codes == (4, 8196)
    assert (canvas.grid.row_end, canvas.grid.tail) == (8803, (8196,))
    assert (canvas.grid.height, canvas.grid.width, canvas.grid.length) == (48, 32, 48 * 33 + 1)
    assert sooner.canvas(model, layout="lumina").grid.length == 48 * 49 + 1


def test_sizes_that_no_token_names_are_refused() -> None:
    model = tiny.chameleon()
    assert sooner.canvas(model, height=16, width=16).grid.length == 17
    with pytest.raises(SoonerError, match=r"height=32: .* 16 x 16 pixels only"):
        sooner.canvas(model, height=32)
    with pytest.raises(SoonerError, match=r"width=70: .* multiples of 32 pixels; give 64"):
        sooner.canvas(model, layout="lumina", height=64, width=70)
    with pytest.raises(SoonerError, match="has no '<reserved08824>'"):
        sooner.canvas(model, layout="lumina")  # the tiny vocabulary ends at 8 blocks
    with pytest.raises(SoonerError, match=r"width=7: .* multiples of 2 pixels; give 8"):
        sooner.canvas(tiny.emu3(), height=6, width=7)
    with pytest.raises(SoonerError, match=r"height=8: .* 16 x 16"):
        sooner.canvas(tiny.janus(), height=8)
    assert sooner.canvas(tiny.emu3()).grid.length == 90 * 91 + 3


def test_unknown_options_and_layouts_are_refused_by_name() -> None:
    with pytest.raises(SoonerError, match=r"JanusCanvas has no option 'heigth' \(did you mean"):
        sooner.canvas(tiny.janus(), heigth=16)
    with pytest.raises(SoonerError, match="CosmosCanvas has no option 'height'"):
        sooner.canvas(tiny.cosmos_ar(), height=16)
    assert sooner.canvas(tiny.cosmos_ar(), height=None, prefix=1).grid.prefix == 12
    with pytest.raises(SoonerError, match=r"unknown layout 'lumnia' \(did you mean 'lumina'"):
        sooner.canvas(tiny.chameleon(), layout="lumnia")
    with pytest.raises(SoonerError, match=r"prefix=3: .* from 1 to 2 of them"):
        sooner.canvas(tiny.cosmos_ar(), prefix=3)
    assert set(CANVASES) == {"chameleon", "cosmos_ar", "emu3", "janus"} <= set(FAMILIES)


def test_emu3_takes_negative_prompts_as_generate_does() -> None:
    canvas, inputs = tiny.canvas("emu3"), tiny.inputs("emu3", 2)
    words = [[tiny.E_BOS, 4, 5, 6], [tiny.E_BOS, 7]]
    for lists in (words, words[:1]):
        negative = tiny.padded(lists, tiny.E_PAD)
        request = inputs | {
            "negative_prompt_ids": negative["input_ids"],
            "negative_prompt_attention_mask": negative["attention_mask"],
        }
        drawing = sooner.draw(canvas, request, do_sample=False, guidance=3.0)
        for row, prompt in enumerate(rows_of(inputs)):
            blank = lists[row % len(lists)] + prompt[-5:]
            expected = reference.draw_row("emu3", tiny.emu3(), prompt, 3.0, blank)
            assert drawing.tokens[row].tolist() == expected
        assert sooner.draw(canvas, request, do_sample=False, guidance=1.0).tokens.tolist() == (
            reference.drawn("emu3", 2, 1.0)
        )
    with pytest.raises(SoonerError, match="2 negative prompts for 3 prompts"):
        canvas.guided_inputs(
            tiny.inputs("emu3", 3) | {"negative_prompt_ids": torch.zeros(2, 3, dtype=torch.long)}
        )


def test_emu3_wants_prompts_of_its_processor() -> None:
    canvas, inputs = tiny.canvas("emu3"), tiny.inputs("emu3", 1)
    sooner.draw(canvas, inputs | {"image_sizes": [[3, 5]]}, seed=0)
    with pytest.raises(SoonerError, match="is for 4 x 5 codes, the canvas has 3 x 5"):
        sooner.draw(canvas, inputs | {"image_sizes": [[4, 5]]}, seed=0)
    with pytest.raises(SoonerError, match=r"ends with id 3 and not with '<\|image token\|>'"):
        sooner.draw(canvas, {"input_ids": torch.tensor([[1, 2, 3]])}, seed=0)


def test_clips_need_the_prefix_frames() -> None:
    for ids in (torch.zeros(1, 6), torch.zeros(1, 11)):
        with pytest.raises(SoonerError, match=r"1 latent frames of 3 x 4 are 12"):
            sooner.draw(tiny.canvas("cosmos_ar"), {"input_ids": ids.long()}, seed=0)


@pytest.mark.parametrize("family", ["chameleon", "lumina"])
def test_chameleon_hands_its_decoder_the_numbers_of_the_vq_model(family: str) -> None:
    options = tiny.OPTIONS.get(family, {})
    canvas = sooner.canvas(tiny.model(family), **options, decoder=Echo())
    tokens, codes = spans(family)
    codes = torch.tensor(tiny.SCRAMBLED)[codes]
    pixels = canvas.pixels(tokens)
    assert pixels.shape == (2, 1, 2 * canvas.grid.height, 2 * canvas.grid.width, 3)
    torch.testing.assert_close(pixels[:, :, ::2, ::2, 1] * 2 - 1, codes / 100)
    with pytest.raises(SoonerError, match="pass decoder="):
        tiny.canvas(family).pixels(tokens)


def test_chameleon_reads_back_what_its_encoder_writes() -> None:
    """The codes of a picture, put through the ids and back, are the encoder's own."""
    model = tiny.chameleon()
    picture = torch.randn(2, 3, 16, 16)
    numbers = model.model.vqmodel.encode(picture, return_dict=True).image_tokens.view(2, 1, 4, 4)
    ids = torch.cat([model.get_image_tokens(picture), torch.full((2, 1), tiny.C_EOI)], 1)
    canvas = sooner.canvas(model, decoder=Echo())
    expected = numbers / 100
    torch.testing.assert_close(canvas.pixels(ids)[:, :, ::2, ::2, 0] * 2 - 1, expected)


def test_emu3_decodes_as_its_vq_model_does() -> None:
    canvas, model = tiny.canvas("emu3"), tiny.emu3()
    tokens, codes = spans("emu3")
    numbers = torch.tensor(tiny.SCRAMBLED)[codes]  # [rows, 1, 3, 5]
    with torch.no_grad():
        frames = model.model.vqmodel.decode(numbers[:, 0])  # [rows, 3, 6, 10]
        pixels = canvas.pixels(tokens)
    assert pixels.shape == (2, 1, 6, 10, 3)
    torch.testing.assert_close(pixels[:, 0], (frames.permute(0, 2, 3, 1) + 1).div(2).clamp(0, 1))


def test_clips_are_decoded_by_their_tokenizer() -> None:
    class Clips:
        def decode(self, codes: Tensor) -> Tensor:
            return torch.stack([codes / 100] * 3, 1)

    tokens, codes = spans("cosmos_ar")
    canvas = sooner.canvas(tiny.cosmos_ar(), prefix=1, tokenizer=Clips())
    pixels = canvas.pixels(tokens)
    assert pixels.shape == (2, 3, 3, 4, 3)
    torch.testing.assert_close(pixels[..., 2] * 2 - 1, codes / 100)
    with pytest.raises(SoonerError, match=r"pass .*tokenizer="):
        tiny.canvas("cosmos_ar").pixels(tokens)


@pytest.mark.parametrize(
    ("family", "sampling"),
    [
        ("janus", Sampling(guidance=5.0)),
        ("chameleon", Sampling(temperature=0.7, top_p=0.9, guidance=3.0)),
        ("lumina", Sampling(top_k=2000, guidance=3.0)),
        ("emu3", Sampling(top_k=2048, guidance=3.0)),
        ("cosmos_ar", Sampling(top_p=0.8)),
    ],
)
def test_a_silent_checkpoint_draws_as_its_published_code_does(
    family: str, sampling: Sampling
) -> None:
    assert tiny.canvas(family).sampling == sampling


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
    return weights(CODES, 1, widths=(32, 32, 64), features=8, latent=32)


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
