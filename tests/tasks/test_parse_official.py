"""Tiny random models of document families, through their real processors and official prompts.

dots.ocr comes with code of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DeepseekOcr2ImageProcessor,
    DeepseekOcr2Processor,
    Glm46VImageProcessor,
    Glm46VProcessor,
    Glm46VVideoProcessor,
    GotOcr2ImageProcessor,
    GotOcr2Processor,
    HunYuanVLImageProcessor,
    HunYuanVLProcessor,
    LightOnOcrProcessor,
    PaddleOCRVLImageProcessor,
    PaddleOCRVLProcessor,
    PixtralImageProcessor,
    PreTrainedTokenizerFast,
    QianfanOCRProcessor,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

import tiny
from sooner.documents import PageDraft, Region
from sooner.tasks.loading import Loaded, ModelPair
from sooner.tasks.parse import PageParser, ParseSettings
from sooner.tasks.parse.families import FAMILIES
from sooner.tasks.parse.model_inputs import picture_inputs
from sooner.tasks.parse.parser import add_stops
from tasks.parsing import noise_page

TEMPLATE_HEAD = "{% for message in messages %}{% for part in message['content'] %}"
TEMPLATE_TAIL = "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"

PATCHES = {"patch_size": 7, "merge_size": 2, "min_pixels": 28 * 28, "max_pixels": 56 * 56 * 4}

TOKENS = 12


def template(picture: str) -> str:
    return f"{TEMPLATE_HEAD}{{% if part['type'] == 'image' %}}{picture}{TEMPLATE_TAIL}"


def tokenizer(image: str = "<img>", **named: str) -> PreTrainedTokenizerFast:
    """One word an id, special tokens where `tiny`'s configs have them, and what processors ask."""
    names = {
        tiny.IMAGE: image, tiny.VIDEO: "<vid>", tiny.VISION_START: "<is>", tiny.VISION_END: "<ie>",
        tiny.PAD: "<pad>", tiny.EOS: "<eos>",
    }  # fmt: skip
    vocab = {names.get(index, f"w{index}"): index for index in range(tiny.VOCAB)}
    core = Tokenizer(models.WordLevel(vocab, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    usual = {
        "image_token": image, "video_token": "<vid>", "image_start_token": "<is>",
        "image_end_token": "<ie>", "image_break_token": "w80",
    }  # fmt: skip
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="w0",
        extra_special_tokens=named or usual,
    )  # fmt: skip


def paddleocr_vl() -> Any:
    image = PaddleOCRVLImageProcessor(**PATCHES)
    return PaddleOCRVLProcessor(image, tokenizer(), chat_template=template("<is><img><ie>"))


def glm_ocr() -> Any:
    size = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56 * 4}
    image = Glm46VImageProcessor(patch_size=7, merge_size=2, size=size)
    video = Glm46VVideoProcessor(patch_size=7, merge_size=2)
    return Glm46VProcessor(image, tokenizer(), video, chat_template=template("<is><img><ie>"))


def hunyuan_vl() -> Any:
    image = HunYuanVLImageProcessor(**PATCHES)
    return HunYuanVLProcessor(image, tokenizer(), chat_template=template("<is><img><ie>"))


def lighton_ocr() -> Any:
    image = PixtralImageProcessor(patch_size={"height": 7, "width": 7}, size={"longest_edge": 56})
    return LightOnOcrProcessor(
        image, tokenizer(), patch_size=7, spatial_merge_size=2, chat_template=template("<img>")
    )


def qianfan_ocr() -> Any:
    image = GotOcr2ImageProcessor(size={"height": 28, "width": 28}, max_patches=4)
    words = tokenizer(start_image_token="<is>", end_image_token="<ie>", context_image_token="<img>")
    return QianfanOCRProcessor(image, words, image_seq_length=4, chat_template=template("<image>"))


def got_ocr2() -> Any:
    image = GotOcr2ImageProcessor(size={"height": 128, "width": 128})
    processor = GotOcr2Processor(image, tokenizer("<imgpad>"))
    processor.num_image_tokens = 4
    return processor


def deepseek_ocr2() -> Any:
    return DeepseekOcr2Processor(DeepseekOcr2ImageProcessor(), tokenizer("<image>"))


def qwen2_5_vl() -> Any:
    return Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(**PATCHES), tokenizer("<|image_pad|>"),
        Qwen2VLVideoProcessor(patch_size=7, merge_size=2),
        chat_template=template("<is><|image_pad|><ie>"),
    )  # fmt: skip


CASES: dict[str, tuple[str, Callable[[], Any]]] = {
    "paddleocr-vl": ("any/name", paddleocr_vl),
    "glm-ocr": ("any/name", glm_ocr),
    "hunyuan-ocr": ("any/name", hunyuan_vl),
    "lighton-ocr": ("any/name", lighton_ocr),
    "qianfan-ocr": ("any/name", qianfan_ocr),
    "got-ocr-2": ("any/name", got_ocr2),
    "deepseek-ocr-2": ("any/name", deepseek_ocr2),
    "olmocr": ("allenai/olmOCR-2-7B", qwen2_5_vl),
    "nanonets-ocr": ("nanonets/Nanonets-OCR-s", qwen2_5_vl),
}


def test_answers_end_where_the_family_s_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """GOT-OCR's chat ends its turns by a token that its checkpoint's config does not name."""
    model, processor = tiny.model("got_ocr2"), got_ocr2()
    monkeypatch.setattr(model, "generation_config", copy.deepcopy(model.generation_config))
    pair, page = ModelPair(Loaded("any/name", model, processor)), noise_page(112, 140)
    settings = ParseSettings(max_new_tokens=TOKENS, repetition=0)
    whole = PageParser(pair, settings)(page)
    first, *rest = whole.raw.split()
    assert rest
    add_stops(model, processor.tokenizer, (first, "not a token"))
    assert model.generation_config.eos_token_id == [
        tiny.EOS, processor.tokenizer.convert_tokens_to_ids(first),
    ]  # fmt: skip
    ended = PageParser(pair, settings)(page)
    assert (ended.raw, ended.status, ended.truncated) == ("", "SUCCESS", None)
    assert FAMILIES["got-ocr-2"].stops == ("<|im_end|>",)


@pytest.mark.parametrize("family", CASES)
def test_a_page_has_the_official_prompt_and_reads_as_generate_does(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, make = CASES[family]
    model, processor = tiny.model(make.__name__), make()
    prompts: list[str] = []
    called = type(processor).__call__

    def listening(self: Any, *args: Any, **options: Any) -> Any:
        prompts.extend(options["text"])
        return called(self, *args, **options)

    monkeypatch.setattr(type(processor), "__call__", listening)
    pair = ModelPair(Loaded(name, model, processor))
    page, official = noise_page(112, 140), FAMILIES[family].ask
    inputs = picture_inputs(processor, [page.picture], official.page, model, official.template)
    sequences = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
    want = processor.tokenizer.decode(
        sequences[0, inputs["input_ids"].shape[1] :], skip_special_tokens=family != "deepseek-ocr-2"
    )
    settings = ParseSettings(max_new_tokens=TOKENS, repetition=0, stages="both")
    parser = PageParser(pair, settings)
    assert parser.ask.page == official.page
    assert parser(page).raw == want
    assert len(set(prompts)) == 1  # the page's prompt, in whatever the family has around it
    assert official.page in prompts[0]
    before, regions = len(prompts), ("Text", "Table", "Formula")
    drafts = [
        Region((0, 45 * place, 112, 45 * place + 44), label, place, ["w1 w2 w3"])
        for place, label in enumerate(regions)
    ]
    drafted = parser(page, PageDraft(drafts, size=page.size))
    assert drafted.raw == want
    assert "regions" in drafted.stages
    crops = "\n".join(prompts[before:])
    for draft in drafts:
        assert parser.ask.about(draft).prompt in crops
