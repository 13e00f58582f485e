"""SmolVLM2 from folders as published: real clips and pictures, the smaller model drafting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import SmolVLMVideoProcessor
from transformers.models.smolvlm import processing_smolvlm

import published_smolvlm as published
import sooner
from commands import Run, records
from commands import run as run
from sooner.tasks import frames
from sooner.tasks.caption import verify
from sooner.tasks.clip import prepare
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.prompting import chat
from sooner.tasks.settings import CaptionSettings
from sooner.tasks.video import probe
from tasks import videos

NEW = 16
QUESTION = "What happens?"
SETTINGS = CaptionSettings(
    prompt=QUESTION, max_new_tokens=NEW, num_draft_tokens=3, method="speculative"
)
WORDS = {1: "one", 3: "three", 5: "five", 10: "ten"}
"""What num2words says of the few counts of frames here, whether it is installed or not."""


@pytest.fixture(autouse=True)
def words_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing_smolvlm, "num2words", WORDS.__getitem__)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a draft whose weights are its, shaken."""
    place = tmp_path_factory.mktemp("hub")
    target = published.write(place / "SmolVLM2-500M-Video-Instruct")
    return target, published.write(place / "SmolVLM2-256M-Video-Instruct", noise=0.03)


@pytest.fixture(scope="module")
def pair(folders: tuple[Path, Path]) -> Iterator[ModelPair]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processing_smolvlm, "num2words", WORDS.__getitem__)
        yield load_pair(str(folders[0]), str(folders[1]), device="cpu")


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "clip.mp4"
    return videos.write(path, frames=50, size=(160, 96), rate=10, noise=True)


def by_hf(pair: ModelPair, film: Path) -> tuple[Any, list[int]]:
    """Inputs by the model's own processor, which samples the whole clip, and what `generate` says
    of them."""
    processor, info = pair.target.processor, probe(film)
    whole = frames.read(info, lambda known: range(known.frames)).pixels
    inputs = processor(
        text=[chat(processor, QUESTION)], videos=[[torch.from_numpy(whole)]],
        videos_kwargs={"video_metadata": [frames.metadata(info)], "do_sample_frames": True,
                       "fps": 1, "num_frames": 64},
        return_tensors="pt",
    )  # fmt: skip
    kept = ("input_ids", "attention_mask", "pixel_values", "pixel_attention_mask")
    inputs = {name: inputs[name] for name in kept}
    tokens = pair.target.model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
    return inputs, tokens[0, inputs["input_ids"].shape[1] :].tolist()


def test_a_clip_gives_the_tokens_of_generate(
    pair: ModelPair, folders: Any, film: Path, run: Run, tmp_path: Path
) -> None:
    """One frame a second, each 64 tokens behind its time stamp; a draft by turns, a draft beside
    the target that sees a tenth of the tokens, and the command."""
    expected, tokens = by_hf(pair, film)
    ours = prepare(film, pair, SETTINGS)
    assert ours.frames.indices == [0, 12, 24, 36, 49]
    assert ours.inputs["pixel_values"].shape == (1, 5, 3, 512, 512)
    for name, value in expected.items():
        assert torch.equal(ours.inputs[name], value), name
    assert len(set(tokens)) > 3
    adapter = sooner.models.adapt(pair.target.model)
    views = adapter.packed_frames(ours.inputs)
    assert views[views >= 0].bincount().tolist() == [published.VIEW_TOKENS] * 5
    for settings in (SETTINGS, replace(SETTINGS, method="parallel", prune=0.9, placement="thread")):
        report = verify(film, pair, settings)
        assert (report["verdict"], report["candidate_ids"]) == ("identical", tokens)
    assert report["mode"] == "exact"
    output = tmp_path / "captions.jsonl"
    done = run(
        "caption", film, "--model", folders[0], "--draft", folders[1], "--prompt", QUESTION,
        "--max-new-tokens", NEW, "--method", "speculative", "--num-draft-tokens", 3, "-o", output,
    )  # fmt: skip
    assert done.code == 0, done.err
    record = records(output)[0]
    assert record["text"] == pair.target.tokenizer.decode(tokens, skip_special_tokens=True)
    assert record["acceptance"] > 1


def test_a_picture_in_tiles_gives_the_tokens_of_generate(pair: ModelPair) -> None:
    processor = pair.target.processor
    picture = videos.picture(3, 300, 200, noise=True)
    inputs = processor(
        text=[chat(processor, QUESTION, "image")], images=[[picture]], return_tensors="pt",
        images_kwargs={"size": {"longest_edge": 1024}},
    )  # fmt: skip
    assert (inputs["input_ids"] == published.IMAGE).sum() == 5 * published.VIEW_TOKENS
    target, draft = pair.target.model, pair.draft.model
    expected = target.generate(**inputs, max_new_tokens=NEW, do_sample=False)
    method = sooner.Speculative(draft, num_draft_tokens=3)
    made = sooner.generate(target, dict(inputs), method, max_new_tokens=NEW, do_sample=False)
    assert made.tokens == expected[:, inputs["input_ids"].shape[1] :].tolist()
    assert made.stats.num_accepted_draft_tokens > 0
    engine = sooner.Engine(target, method, pages=40)
    for is_second in (False, True):
        request = engine.add_request(dict(inputs), max_new_tokens=NEW, do_sample=False)
        engine.run()
        assert request.tokens == made.tokens
        assert (request.cached_tokens > 0) == is_second


def test_a_missing_package_is_named_in_a_line(
    monkeypatch: pytest.MonkeyPatch, folders: Any, film: Path, run: Run
) -> None:
    monkeypatch.setattr(processing_smolvlm, "num2words", None)
    done = run("caption", film, "--model", folders[0])
    assert done.code != 0
    assert "pip install num2words" in done.errors[0]


@pytest.mark.parametrize(
    ("options", "count"), [({}, 5), ({"frames": 3}, 3), ({"fps": 2.0}, 10), ({"frames": 50}, 50)]
)
def test_a_rate_and_a_number_of_frames_are_taken(
    film: Path, options: dict[str, Any], count: int
) -> None:
    """Its processor takes a frame a second, and at most 64."""
    sampling = published.PREPROCESSOR["video_sampling"]
    sampler = frames.Sampler(SmolVLMVideoProcessor(video_sampling=dict(sampling)), **options)
    assert len(sampler(probe(film))) == count
