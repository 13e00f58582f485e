"""Pictures and instructions to inputs, against the published processor written out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import openvla_published as published
import sooner
import tiny
from sooner.errors import SoonerError
from sooner.models.openvla.config import OpenVLAConfig
from sooner.models.openvla.processing import OpenVLAProcessor, PictureForm

ID = {word: i for i, word in enumerate(published.WORDS)}
ROUNDED = {
    "image_resize_strategy": "resize-naive",
    "interpolations": ["bicubic", "bicubic"],
    "means": [[0.484375, 0.455078125, 0.40625], [0.5, 0.5, 0.5]],
    "stds": [[0.228515625, 0.2236328125, 0.224609375], [0.5, 0.5, 0.5]],
}


@pytest.fixture
def config() -> OpenVLAConfig:
    tower = {"image_size": 28, "patch_size": 14}
    return OpenVLAConfig(
        dino_config=tower, siglip_config=tower, image_token_id=50, trailing_token_id=ID["▁"]
    )


@pytest.fixture
def processor(config: OpenVLAConfig) -> OpenVLAProcessor:
    return OpenVLAProcessor.of(published.tokenizer(), config)


def photo(height: int = 20, width: int = 31, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def literal_pixels(array: np.ndarray, settings: dict[str, Any], side: int) -> np.ndarray:
    """Stretched to a square twice, divided by 255, each tower's mean and deviation."""
    views = []
    for mean, std in zip(settings["means"], settings["stds"], strict=True):
        square = Image.fromarray(array).resize((side, side), Image.Resampling.BICUBIC)
        numbers = np.asarray(square, dtype=np.float64) / 255
        for channel in range(3):
            views.append((numbers[:, :, channel] - mean[channel]) / std[channel])
    return np.stack(views)


def test_the_prompt_is_the_published_prompt(processor: OpenVLAProcessor) -> None:
    expected = "In: What action should the robot take to open the drawer?\nOut:"
    assert processor.text("open the Drawer") == expected
    assert processor.text("{} {instruction}").endswith("take to {} {instruction}?\nOut:")


@pytest.mark.parametrize("settings", [None, ROUNDED])
def test_pixels_are_the_published_ones(settings: dict[str, Any] | None) -> None:
    form = PictureForm(28) if settings is None else PictureForm.published(settings, 28)
    exact = {
        "means": [[0.485, 0.456, 0.406], [0.5] * 3],
        "stds": [[0.229, 0.224, 0.225], [0.5] * 3],
    }
    pixels = form(photo())
    assert pixels.dtype == torch.float32
    expected = literal_pixels(photo(), settings or exact, 28)
    assert np.allclose(pixels.numpy(), expected, atol=1e-6)


def test_single_and_several_observations_arrays_and_pil_are_alike(
    processor: OpenVLAProcessor,
) -> None:
    single = processor(photo(), "push")
    for pictures in ([photo()], Image.fromarray(photo()), torch.from_numpy(photo())):
        other = processor(pictures, "push")
        assert all(torch.equal(single[name], other[name]) for name in single)
    assert single["pixel_values"].shape == (1, 6, 28, 28)
    stacked = processor(np.stack([photo(), photo(seed=1)]), ["push", "push"])
    listed = processor((photo(), photo(seed=1)), ["push", "push"])
    assert torch.equal(stacked["pixel_values"], listed["pixel_values"])
    assert not torch.equal(stacked["pixel_values"][0], stacked["pixel_values"][1])
    grey = processor(Image.fromarray(photo()).convert("L"), "push")["pixel_values"][0]
    assert torch.equal(grey[3], grey[4])  # SigLIP's channels, normalised alike


def test_a_published_folder_is_read_with_the_policy_s_config(
    config: OpenVLAConfig, tmp_path: Path
) -> None:
    published.tokenizer().save_pretrained(tmp_path)
    assert OpenVLAProcessor.from_pretrained(tmp_path, config).form == PictureForm(28)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(ROUNDED))
    read = OpenVLAProcessor.from_pretrained(tmp_path, config)
    assert read.form == PictureForm.published(ROUNDED, 28)
    assert read.ids("push") == OpenVLAProcessor.of(published.tokenizer(), config).ids("push")
    with pytest.raises(SoonerError, match=r"has no openvla_processor\.json"):
        OpenVLAProcessor.from_pretrained(tmp_path)


INSTRUCTIONS = ["push", "open the drawer", "take the block to the drawer"]
PHOTOS = list(np.random.default_rng(2).integers(0, 256, (3, 30, 40, 3), dtype=np.uint8))


@pytest.fixture
def processor_of_tiny() -> OpenVLAProcessor:
    return OpenVLAProcessor(published.tokenizer(), PictureForm(28), 16, tiny.IMAGE, ID["▁"])


def test_observations_decoded_together_equal_each_alone(
    processor_of_tiny: OpenVLAProcessor,
) -> None:
    model = tiny.model("openvla")
    together = processor_of_tiny(PHOTOS, INSTRUCTIONS)
    assert not together["attention_mask"].all()
    ran = sooner.generate(model, together, sooner.PromptLookup(), max_new_tokens=8)
    output_ids = ran.sequences[:, together["input_ids"].shape[1] :].tolist()
    for row, (photo, instruction) in enumerate(zip(PHOTOS, INSTRUCTIONS, strict=True)):
        alone = processor_of_tiny(photo, instruction)
        expected = model.generate(**alone, max_new_tokens=8, do_sample=False)
        assert output_ids[row] == expected[0, alone["input_ids"].shape[1] :].tolist()
    assert output_ids[0] != output_ids[1] != output_ids[2]


def test_pixels_that_do_not_match_the_prompt_are_refused_in_a_single_line(
    processor_of_tiny: OpenVLAProcessor,
) -> None:
    inputs = processor_of_tiny(PHOTOS[:2], INSTRUCTIONS[:2])
    inputs["pixel_values"] = inputs["pixel_values"][:1]
    with pytest.raises(SoonerError, match="32 placeholders and 16 patches do not match") as caught:
        sooner.generate(tiny.model("openvla"), inputs, max_new_tokens=1)
    assert str(caught.value).count("processed inputs") == 1


@pytest.mark.parametrize(
    ("picture", "instruction", "message"),
    [
        (photo().astype(np.float32), "push", "type 'float32'; it must be uint8"),
        (photo()[:, :, 0], "push", r"shape \[20, 31\]"),
        (np.moveaxis(photo(), -1, 0), "push", r"shape \[3, 20, 31\]"),
        (photo()[:0], "push", "31 x 0; it must have pixels"),
        ("picture.png", "push", "is a str"),
        (Image.new("1", (20_000, 6_000)), "push", "120 megapixels; at most 25"),
        (np.broadcast_to(np.uint8(0), (20_000, 6_000, 3)), "push", "120 megapixels; at most 25"),
        (photo(), " \n", "instruction is empty"),
        ([photo()] * 2, ["push", ""], "instruction is empty"),
        (photo(), [None], "instruction is a NoneType"),
        (photo(), ["push"] * 3, "1 pictures and 3 instructions do not pair"),
        (photo(), "a" * 5000, "5000 characters"),
    ],
)
def test_other_inputs_are_refused(
    processor: OpenVLAProcessor, picture: Any, instruction: Any, message: str
) -> None:
    with pytest.raises(SoonerError, match=message):
        processor(picture, instruction)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PictureForm.published({"image_resize_strategy": "letterbox"}, 28),
         "'letterbox' is not built in"),
        (lambda: PictureForm.published({"interpolations": ["bicubic", "bilinear"]}, 28),
         "'bilinear' is not built in"),
        (lambda: PictureForm(side=0), "side is 0; it must be a whole number"),
        (lambda: PictureForm(means=[[0.5] * 3]),
         "not three numbers for each of two towers"),
        (lambda: PictureForm(stds=[[0.5] * 3, [0.5, 0.5, 0]]), "not all above 0"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        make()


def test_broken_files_are_refused(processor: OpenVLAProcessor, tmp_path: Path) -> None:
    processor.save_pretrained(tmp_path)
    file = tmp_path / "openvla_processor.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"promt": "x"}))
    with pytest.raises(SoonerError, match="did you mean 'prompt'"):
        OpenVLAProcessor.from_pretrained(tmp_path)
    file.write_text(json.dumps(settings | {"pictures": {"sidde": 3}}))
    with pytest.raises(SoonerError, match="did you mean 'side'"):
        OpenVLAProcessor.from_pretrained(tmp_path)
    del settings["pictures"]
    file.write_text(json.dumps(settings))
    with pytest.raises(SoonerError, match="has no 'pictures'"):
        OpenVLAProcessor.from_pretrained(tmp_path)
    file.write_text("{")
    with pytest.raises(SoonerError, match="is not JSON"):
        OpenVLAProcessor.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    file.unlink()
    with pytest.raises(SoonerError, match=r"has no tokenizer\.json"):
        OpenVLAProcessor.from_pretrained(tmp_path, OpenVLAConfig())


def test_a_tokenizer_without_bos_and_a_prompt_without_place(processor: OpenVLAProcessor) -> None:
    with pytest.raises(SoonerError, match=r"no place for the \{instruction\}"):
        OpenVLAProcessor(processor.tokenizer, processor.form, 4, prompt="Go!")
    processor.tokenizer.bos_token = None
    with pytest.raises(SoonerError, match="no BOS token"):
        OpenVLAProcessor(processor.tokenizer, processor.form, 4)
