"""`sooner serve TARGET --draft DRAFT` on folders: a Qwen3-VL pair answers as HF's own `generate`.

The pair is tiny and random. Its processor, chat template and checkpoint folders are what a
published one has; each token is a letter, so that a text tells its ids.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

import tiny
from serve.test_chat_process import Started, start
from sooner.tasks.frames import metadata, read
from sooner.tasks.video import probe
from tasks import videos
from tasks.test_task_families import PATCHES

pytestmark = pytest.mark.slow

NEW = 40
SPECIAL = {
    tiny.IMAGE: "<|image_pad|>", tiny.VIDEO: "<|video_pad|>",
    tiny.VISION_START: "<|vision_start|>", tiny.VISION_END: "<|vision_end|>",
    tiny.PAD: "<|endoftext|>", tiny.EOS: "<|im_end|>",
}  # fmt: skip
UNWRITTEN = "~^`@$"
"""Letters of ASCII's 95 characters and the newline that have no token."""
TEMPLATE = (
    "{% for message in messages %}{{ message.role + ': ' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def letters() -> PreTrainedTokenizerFast:
    """Byte-level BPE without merges, special tokens at the ids of `tiny`'s configs."""
    written = [chr(code) for code in range(32, 127) if chr(code) not in UNWRITTEN] + ["\n"]
    pairs = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocab = dict(SPECIAL)
    free = (index for index in range(tiny.VOCAB) if index not in SPECIAL)
    for letter, index in zip(written, free, strict=False):
        vocab[index] = pairs.pre_tokenize_str(letter)[0][0]
    core = Tokenizer(models.BPE({word: index for index, word in vocab.items()}, []))
    core.pre_tokenizer, core.decoder = pairs, decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=SPECIAL[tiny.PAD], eos_token=SPECIAL[tiny.EOS],
        additional_special_tokens=[SPECIAL[index] for index in range(tiny.IMAGE, tiny.PAD)],
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`target`, `draft`, pictures and videos."""
    made = tmp_path_factory.mktemp("pair")
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=7, merge_size=2, min_pixels=28 * 28), letters(),
        Qwen3VLVideoProcessor(**PATCHES, fps=2), chat_template=TEMPLATE,
    )  # fmt: skip
    for name, model in (("target", tiny.model("qwen3_vl")), ("draft", tiny.noisy("qwen3_vl"))):
        model.save_pretrained(made / name)
        processor.save_pretrained(made / name)
    for seed in range(2):
        pixels = np.random.default_rng(seed).integers(0, 256, (56, 42 + 28 * seed, 3), np.uint8)
        Image.fromarray(pixels).save(made / f"{seed}.png")
    videos.write(made / "a.mp4", frames=40, size=(56, 56), rate=8, noise=True)
    videos.write(made / "b.mkv", frames=25, size=(84, 56), rate=5, noise=True)
    return made


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[Started]:
    options = ("--draft", "draft", "--num-draft-tokens", "4", "--media-root", ".")
    started = start(folder, "target", *options)
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture(scope="module")
def reference(folder: Path) -> tuple[Any, Any]:
    """The target's model and processor as transformers loads them."""
    model = AutoModelForImageTextToText.from_pretrained(folder / "target").eval()
    return model, AutoProcessor.from_pretrained(folder / "target")


def hf_answer(reference: tuple[Any, Any], folder: Path, parts: list[str]) -> str:
    """HF's own greedy answer: the processor samples the frames of whole videos."""
    model, processor = reference
    pictures, films, known = [], [], []
    content = []
    for part in parts:
        path = folder / part
        if part.endswith(".png"):
            pictures.append(Image.open(path).convert("RGB"))
            content.append({"type": "image"})
        elif path.suffix in (".mp4", ".mkv"):
            info = probe(path)
            films.append(torch.from_numpy(read(info, lambda known: range(known.frames)).pixels))
            known.append(metadata(info))
            content.append({"type": "video"})
        else:
            content.append({"type": "text", "text": part})
    messages = [{"role": "user", "content": content}]
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    inputs = processor(
        text=[text], images=pictures or None, videos=films or None,
        videos_kwargs={"video_metadata": known, "do_sample_frames": True} if films else {},
        return_tensors="pt",
    )  # fmt: skip
    ids = model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
    new = ids[0, inputs["input_ids"].shape[1] :]
    return str(processor.tokenizer.decode(new, skip_special_tokens=True))


def chat_messages(folder: Path, parts: list[str], by_name: bool = False) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for part in parts:
        suffix = Path(part).suffix
        if suffix not in (".png", ".mp4", ".mkv"):
            content.append({"type": "text", "text": part})
            continue
        data = base64.b64encode((folder / part).read_bytes()).decode()
        url = part if by_name else f"data:application/octet-stream;base64,{data}"
        kind = "image_url" if suffix == ".png" else "video_url"
        content.append({"type": kind, kind: {"url": url}})
    return [{"role": "user", "content": content}]


PROMPTS = {
    "text": ["What is this?"],
    "picture": ["0.png", "What is in this picture?"],
    "pictures": ["0.png", "and then", "1.png", "Which one?"],
    "video": ["a.mp4", "What happens?"],
    "videos": ["b.mkv", "or", "a.mp4", "Which one?"],
    "mixed": ["Look:", "1.png", "b.mkv", "What is it?"],
}


@pytest.mark.parametrize("by_name", [False, True], ids=["data", "media-root"])
def test_answers_equal_those_of_hf(
    pair: Started, reference: tuple[Any, Any], folder: Path, by_name: bool
) -> None:
    """All at once, so that prompts of every kind share a batch."""

    def ask(parts: list[str]) -> Any:
        return pair.client.chat.completions.create(
            model="target", messages=chat_messages(folder, parts, by_name), max_tokens=NEW
        )

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        answers = dict(zip(PROMPTS, pool.map(ask, PROMPTS.values()), strict=True))
    accepted = 0
    for name, parts in PROMPTS.items():
        expected = hf_answer(reference, folder, parts)
        assert answers[name].choices[0].message.content == expected, name
        assert len(expected) > 5
        drafts = answers[name].model_extra["metrics"]["speculative_decoding"]
        assert drafts["mode"] == "exact"
        accepted += drafts["num_accepted_draft_tokens"]
    assert accepted > NEW


def test_a_draft_with_other_pixels_is_refused(folder: Path, tmp_path: Path) -> None:
    processor = AutoProcessor.from_pretrained(folder / "draft")
    processor.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 9}
    tiny.model("qwen3_vl").save_pretrained(tmp_path / "other")
    processor.save_pretrained(tmp_path / "other")
    with pytest.raises(AssertionError, match="processes pixels otherwise"):
        start(folder, "target", "--draft", str(tmp_path / "other"))
