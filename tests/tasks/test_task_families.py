"""Real processors of every family: their own sampling, timestamps and placeholders, to the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

import tiny
from sooner.tasks.caption import verify
from sooner.tasks.clip import prepare
from sooner.tasks.loading import Loaded, ModelPair
from sooner.tasks.prompting import measure
from sooner.tasks.settings import CaptionSettings
from tasks import videos

TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)
PROMPT = "w8 w9 w10 w11 w12 w13"
SETTINGS = CaptionSettings(
    prompt=PROMPT, max_new_tokens=16, num_draft_tokens=3, method="speculative"
)
PATCHES = {
    "patch_size": 7, "merge_size": 2, "temporal_patch_size": 2,
    "size": {"shortest_edge": 28 * 28, "longest_edge": 56 * 56 * 4}, "do_sample_frames": True,
}  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """One word an id, with the special tokens at the ids of `tiny`'s configs."""
    names = {
        tiny.IMAGE: "<|image_pad|>", tiny.VIDEO: "<|video_pad|>",
        tiny.VISION_START: "<|vision_start|>", tiny.VISION_END: "<|vision_end|>",
        tiny.PAD: "<pad>", tiny.EOS: "<eos>",
    }  # fmt: skip
    vocab = {names.get(index, f"w{index}"): index for index in range(tiny.VOCAB)}
    core = Tokenizer(models.WordLevel(vocab, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [names[index] for index in sorted(names)]
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="w0",
        additional_special_tokens=special[:4],
    )  # fmt: skip


def qwen2_5_vl() -> Any:
    return Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(patch_size=7, merge_size=2), tokenizer(),
        Qwen2VLVideoProcessor(**PATCHES, fps=2, min_frames=2), chat_template=TEMPLATE,
    )  # fmt: skip


def qwen3_vl() -> Any:
    return Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=7, merge_size=2), tokenizer(),
        Qwen3VLVideoProcessor(**PATCHES, fps=2), chat_template=TEMPLATE,
    )  # fmt: skip


PROCESSORS = {"qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl}


def pair_of(family: str) -> ModelPair:
    processor = PROCESSORS[family]()
    target = Loaded(family, tiny.model(family), processor)
    return ModelPair(target, Loaded("draft", tiny.model(family, seed=1, layers=1), processor))


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "a.mp4"
    return videos.write(path, frames=40, size=(56, 56), rate=8, noise=True)


@pytest.mark.parametrize("family", PROCESSORS)
def test_captions_are_those_of_hf(film: Path, family: str) -> None:
    report = verify(film, pair_of(family), SETTINGS)
    assert report["verdict"] == "identical"
    assert len(set(report["candidate_ids"])) > 3


@pytest.mark.parametrize("family", PROCESSORS)
def test_inputs_are_those_of_the_processor_alone(film: Path, family: str) -> None:
    """Time included: Qwen2.5-VL's seconds a grid step, Qwen3-VL's timestamps in the prompt."""
    from sooner.tasks import frames
    from sooner.tasks.frames import metadata
    from sooner.tasks.prompting import chat
    from sooner.tasks.video import probe

    pair = pair_of(family)
    ready = prepare(film, pair, SETTINGS)
    info = probe(film)
    whole = frames.read(info, lambda known: range(known.frames)).pixels
    expected = pair.target.processor(
        text=[chat(pair.target.processor, PROMPT)], videos=[[torch.from_numpy(whole)]],
        videos_kwargs={"video_metadata": [metadata(info)], "do_sample_frames": True},
        return_tensors="pt",
    )  # fmt: skip
    assert len(ready.frames.indices) == 10
    assert set(expected) == set(ready.inputs)
    for name, value in expected.items():
        ours = ready.inputs[name]
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(ours)), name


@pytest.mark.parametrize("family", PROCESSORS)
def test_counting_ahead_is_right(film: Path, family: str) -> None:
    pair = pair_of(family)
    for count in (2, 6, 10):
        ready = prepare(film, pair, replace(SETTINGS, frames=count))
        frames, processor = ready.frames, pair.target.processor
        counted = measure(processor, frames.info, frames.indices, PROMPT)
        assert torch.equal(counted["input_ids"], ready.inputs["input_ids"])
