"""OpenVLA under the engine: what the exactness matrix, which it is in, does not say."""

from __future__ import annotations

import numpy as np
import pytest

import openvla_published as published
import sooner
import tiny
from sooner.errors import SoonerError
from sooner.models.openvla.pictures import PictureForm
from sooner.models.openvla.processing import OpenVLAProcessor

INSTRUCTIONS = ["push", "open the drawer", "take the block to the drawer"]


@pytest.fixture
def processor() -> OpenVLAProcessor:
    return OpenVLAProcessor(
        published.tokenizer(), PictureForm(28), 16, tiny.IMAGE, published.WORDS.index("▁")
    )


def photos(rows: int) -> list[np.ndarray]:
    return list(np.random.default_rng(2).integers(0, 256, (rows, 30, 40, 3), dtype=np.uint8))


def test_observations_decoded_together_equal_each_alone(
    processor: OpenVLAProcessor,
) -> None:
    model = tiny.model("openvla")
    together = processor(photos(3), INSTRUCTIONS)
    assert not together["attention_mask"].all()
    ran = sooner.generate(model, together, sooner.PromptLookup(), max_new_tokens=8)
    output_ids = ran.sequences[:, together["input_ids"].shape[1] :].tolist()
    for row, (photo, instruction) in enumerate(zip(photos(3), INSTRUCTIONS, strict=True)):
        alone = processor(photo, instruction)
        expected = model.generate(**alone, max_new_tokens=8, do_sample=False)
        assert output_ids[row] == expected[0, alone["input_ids"].shape[1] :].tolist()
    assert output_ids[0] != output_ids[1] != output_ids[2]


def test_pixels_that_do_not_match_the_prompt_are_refused_in_a_single_line(
    processor: OpenVLAProcessor,
) -> None:
    inputs = processor(photos(2), INSTRUCTIONS[:2])
    inputs["pixel_values"] = inputs["pixel_values"][:1]
    with pytest.raises(SoonerError, match="32 placeholders and 16 patches do not match") as caught:
        sooner.generate(tiny.model("openvla"), inputs, max_new_tokens=1)
    assert str(caught.value).count("processed inputs") == 1
