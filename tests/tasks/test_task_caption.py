"""One file in, one record out: the text is the model's own, and the record says how it came."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tiny
from sooner.errors import SoonerError
from sooner.methods import EagleHead
from sooner.models import adapt
from sooner.registry import choices
from sooner.tasks.caption import CaptionCallbacks, caption, verify
from sooner.tasks.clip import prepare, visible_patches
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.settings import CaptionSettings
from tasks import videos
from tasks.fixtures import POSITIONS

SHORT = CaptionSettings(max_new_tokens=24, frames=4, num_draft_tokens=4)


@pytest.fixture(scope="module")
def pair(target_folder: Path, draft_folder: Path) -> ModelPair:
    return load_pair(str(target_folder), str(draft_folder))


@pytest.fixture(scope="module")
def poor(target_folder: Path, poor_folder: Path) -> ModelPair:
    return load_pair(str(target_folder), str(poor_folder))


METHODS = [
    name for name, entry in choices().items() if entry.draft_model != "head" or name == "eagle"
]
"""Drafters of blocks are loaded as heads are; test_head_targets.py loads them."""


@pytest.fixture(scope="module")
def head(poor: ModelPair, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An untrained draft head of the target."""
    folder = tmp_path_factory.mktemp("head")
    EagleHead.for_target(poor.target.model).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("method", METHODS)
def test_text_is_what_the_model_generates(
    clip: Path, poor: ModelPair, head: str, method: str
) -> None:
    settings = replace(SHORT, method=method, head=head if method == "eagle" else None)
    record = caption(clip, poor, settings)
    ready = prepare(clip, poor, settings)
    ids = poor.target.model.generate(**ready.inputs, max_new_tokens=24, do_sample=False)
    new = ids[0, ready.inputs["input_ids"].shape[1] :]
    assert len(set(new.tolist())) > 5  # not a text that any decoder would give
    assert record["text"] == poor.target.tokenizer.decode(new, skip_special_tokens=True).strip()
    assert (record["method"], record["mode"], record["tokens"]) == (method, "exact", 24)


def test_record(clip: Path, pair: ModelPair) -> None:
    pieces: list[str] = []
    stages: list[str] = []
    counts: list[tuple[int, int]] = []
    record = caption(
        clip,
        pair,
        replace(SHORT, compare=True),
        CaptionCallbacks(
            on_stage=stages.append,
            on_text=lambda piece, drafted: pieces.append(piece),
            on_count=lambda *count: counts.append(count),
        ),
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert "".join(pieces) == record["text"]
    assert stages == ["process", "warm-up", "prefill", "compare"]
    assert counts[-1] == (24, 24)
    assert record["method"] in ("speculative", "parallel")  # whichever is faster here
    assert record["acceptance"] > 3  # the draft is the target itself, with its own pixels
    assert record["parity"]["verdict"] == "identical"
    assert record["decode_speedup"] > 0
    assert record["e2e_speedup"] > 0
    assert record["frames"] == 4
    assert record["frame_indices"] == [0, 7, 15, 22]
    assert record["video"]["frames"] == 30
    assert record["finish"] == "length"
    assert record["input_hash"] == hashlib.sha256(clip.read_bytes()).hexdigest()
    assert {"video", "processor", "draft_processor", "vision", "prefill"} <= set(record["seconds"])
    assert all(took >= 0 for took in record["seconds"].values())
    assert str(torch.__version__).startswith(record["versions"]["torch"])


def test_default_method_follows_the_models(clip: Path, pair: ModelPair) -> None:
    quick = replace(SHORT, max_new_tokens=2)
    assert caption(clip, replace(pair, draft=None), quick)["method"] == "prompt-lookup"
    with pytest.raises(SoonerError, match="give --draft"):
        caption(clip, replace(pair, draft=None), replace(quick, method="speculative"))


def test_a_difference_is_judged_and_no_speed_is_claimed(
    clip: Path, poor: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sooner.engine.acceptance import VerifyResult
    from sooner.methods import speculative

    def believe(tree, scores, processing, noise):
        """Accepts every draft: fast, and wrong."""
        choices = processing.choose(scores, tree, noise)
        rows, nodes = tree.tokens.shape
        path = torch.arange(1, 1 + nodes).expand(rows, -1)
        return VerifyResult(path, tree.sizes, choices[:, nodes])

    monkeypatch.setattr(speculative, "follow_choices", believe)
    record = caption(clip, poor, replace(SHORT, compare=True))
    assert record["parity"]["verdict"] == "bug"
    assert record["decode_speedup"] is None
    assert record["e2e_speedup"] is None
    report = verify(clip, poor, SHORT)
    assert report["verdict"] == "bug"
    first = report["divergence"]
    assert report["reference_ids"][first] == report["reference"] != report["candidate"]
    assert report["gap"] > report["tolerance"]
    json.dumps(report, allow_nan=False)
    with pytest.raises(SoonerError, match="needs 0"):
        verify(clip, poor, replace(SHORT, temperature=1.0))


def test_frames_of_a_group_share_what_the_draft_saw() -> None:
    inputs = dict(tiny.inputs("qwen2_5_vl", "video"))
    groups = int(inputs["video_grid_thw"][0, 0])
    frames = adapt(tiny.model("qwen2_5_vl")).packed_frames(inputs)[0]
    each = int((frames == 0).sum())
    clip: Any = SimpleNamespace(inputs=inputs, frames=SimpleNamespace(pixels=[0] * 2 * groups))
    pair: Any = SimpleNamespace(target=SimpleNamespace(model=tiny.model("qwen2_5_vl")))
    kept = visible_patches([range(each)], clip, pair)
    assert kept == [[True] * each] * 2 + [[False] * each] * (2 * groups - 2)


def test_a_model_that_takes_pictures_alone_is_refused(clip: Path, pair: ModelPair) -> None:
    still = replace(pair, target=replace(pair.target, processor=SimpleNamespace()))
    with pytest.raises(SoonerError, match="no videos; name a model that does"):
        caption(clip, still, SHORT)


def test_too_many_frames_names_how_many_fit(tmp_path: Path, pair: ModelPair) -> None:
    path = videos.write(tmp_path / "a.mkv", "mpeg4", 100, (16, 16))
    ask = replace(SHORT, max_new_tokens=2)
    with pytest.raises(
        SoonerError, match=rf"has {POSITIONS} positions; --frames \d+ fits"
    ) as error:
        caption(path, pair, replace(ask, frames=100))
    fits = int(str(error.value).split("--frames ")[1].split()[0])
    assert 10 < fits < 30
    assert caption(path, pair, replace(ask, frames=fits))["tokens"] >= 1
    with pytest.raises(SoonerError):
        caption(path, pair, replace(ask, frames=fits + 1))


def test_positions_after_the_fact_for_processors_that_can_not_count(
    tmp_path: Path, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sooner.tasks.long_video.measure", lambda *args: {})
    test_too_many_frames_names_how_many_fit(tmp_path, pair)


@pytest.mark.parametrize(("count", "size"), [(1, (64, 48)), (30, (10, 10))])
def test_odd_videos_work(
    tmp_path: Path, pair: ModelPair, count: int, size: tuple[int, int]
) -> None:
    path = videos.write(tmp_path / "odd.mp4", frames=count, size=size)
    record = caption(path, pair, replace(SHORT, frames=None, max_new_tokens=3))
    assert record["tokens"] == 3
    assert record["frames"] == min(count, 16)


def test_sampling_repeats_with_its_seed(clip: Path, poor: ModelPair) -> None:
    warm = replace(SHORT, temperature=1.0, compare=True)
    first, again = caption(clip, poor, warm), caption(clip, poor, warm)
    other = caption(clip, poor, replace(warm, seed=1))
    assert first["text"] == again["text"] != other["text"]
    assert first["parity"] is None
