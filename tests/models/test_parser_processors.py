"""Real processors of document parsers: a page through `PageParser`, as plain decoding reads it."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import HunYuanVLProcessor, PaddleOCRVLProcessor, PreTrainedTokenizerFast
from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import (
    HunYuanVLImageProcessorPil,
)
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import (
    PaddleOCRVLImageProcessorPil,
)

import tiny
from sooner.tasks.loading import Loaded, ModelPair
from sooner.tasks.parse import PageParser, ParseSettings
from tasks.parsing import TEMPLATE, draft_of, noise_page
from tasks.test_task_families import tokenizer

PIXELS: dict[str, Any] = {
    "patch_size": 7, "merge_size": 2, "min_pixels": 28 * 28, "max_pixels": 112 * 112,
}  # fmt: skip


def named(**tokens: str) -> PreTrainedTokenizerFast:
    """A tokenizer that names its special tokens, as those of checkpoints do."""
    made = tokenizer()
    for name, token in tokens.items():
        setattr(made, name, token)
        setattr(made, f"{name}_id", made.convert_tokens_to_ids(token))
    return made


def paddleocr_vl() -> Any:
    words = named(image_token="<|image_pad|>")
    return PaddleOCRVLProcessor(
        PaddleOCRVLImageProcessorPil(**PIXELS), words, chat_template=TEMPLATE
    )


def hunyuan_vl() -> Any:
    words = named(
        image_token="<|image_pad|>",
        image_start_token="<|vision_start|>",
        image_end_token="<|vision_end|>",
    )
    return HunYuanVLProcessor(HunYuanVLImageProcessorPil(**PIXELS), words, chat_template=TEMPLATE)


PROCESSORS = {"paddleocr_vl": paddleocr_vl, "hunyuan_vl": hunyuan_vl}


@pytest.mark.parametrize("stages", ["page", "both"])
@pytest.mark.parametrize("family", PROCESSORS)
def test_a_page_is_parsed_as_plain_decoding_parses_it(family: str, stages: str) -> None:
    pair = ModelPair(Loaded(family, tiny.model(family), PROCESSORS[family]()))
    settings = ParseSettings(
        prompt="w40 w50 w60 w70", form="markdown", stages=stages, max_new_tokens=24, nodes=12
    )
    page = noise_page()
    plain = PageParser(pair, settings)(page)
    words = plain.raw.split(" ")
    assert len(set(words)) > 3
    draft = draft_of(page, " ".join(words[:10]), " ".join(words[10:]))
    parsed = PageParser(pair, settings)(page, draft)
    assert parsed.raw == plain.raw
    assert parsed.mode == "exact"
    assert parsed.last.steps < plain.last.steps
    garbage = PageParser(pair, settings)(page, draft_of(page, " ".join(words[::-1] * 2), "w3 w4"))
    assert garbage.raw == plain.raw
