"""`sooner serve FOLDER` of a tiny random PaddleOCR-VL: what it says is HF's own `generate`'s."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedTokenizerFast

import tiny
from models.test_parser_processors import paddleocr_vl
from serve.test_chat_process import Started, about, data_uri, start
from tasks.test_task_families import tokenizer

pytest.importorskip("openai")
pytestmark = pytest.mark.slow

NEW, PAGES, PROMPT = 40, 4, "w40 w50 w60 w70"
PENALTY = 1.5
"""Of repetition: the model would say one word all the time."""


def save(folder: Path) -> Path:
    """A checkpoint's folder."""
    tiny.model("paddleocr_vl").save_pretrained(folder)
    processor = paddleocr_vl()
    # As checkpoints name it, so that it is there again when the tokenizer is loaded.
    processor.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer().backend_tokenizer, pad_token="<pad>", eos_token="<eos>",
        unk_token="w0", model_specific_special_tokens={"image_token": "<|image_pad|>"},
    )  # fmt: skip
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("parser")
    save(folder / "parser")
    started = start(folder, "parser")
    yield started
    started.process.kill()
    started.process.wait()


def test_pages_are_read_as_hf_reads_them(parser: Started, tmp_path: Path) -> None:
    folder = save(tmp_path / "parser")
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor: Any = AutoProcessor.from_pretrained(folder)
    for seed in range(PAGES):
        shape = (112 - 14 * seed, 84 + 14 * seed, 3)
        pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{seed}.png")

    def ask(seed: int) -> str:
        messages = about("image_url", data_uri(tmp_path / f"{seed}.png"), PROMPT)
        told = parser.client.chat.completions.create(
            model="parser", messages=messages, max_tokens=NEW,
            extra_body={"repetition_penalty": PENALTY},
        )  # fmt: skip
        return str(told.choices[0].message.content)

    with ThreadPoolExecutor(PAGES) as pool:
        told = list(pool.map(ask, range(PAGES)))
    for seed in range(PAGES):
        content = [
            {"type": "image", "image": Image.open(tmp_path / f"{seed}.png")},
            {"type": "text", "text": PROMPT},
        ]
        inputs = processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=True,
            return_dict=True, return_tensors="pt",
        )  # fmt: skip
        ids = model.generate(
            **inputs, max_new_tokens=NEW, do_sample=False, repetition_penalty=PENALTY
        )
        new = ids[0, inputs["input_ids"].shape[1] :]
        assert told[seed] == processor.tokenizer.decode(new, skip_special_tokens=True)
    assert len(set(told)) == PAGES
    assert len({word for text in told for word in text.split()}) > 10
