"""Videos of many frames: a few are decoded, encoded and prefilled at once, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.smolvlm import processing_smolvlm

import published_smolvlm as published
from sooner.engine.memory import vision
from sooner.errors import MemoryRanOutError
from sooner.models import adapt
from sooner.models.hooks import ForwardHooks
from sooner.tasks import clip, long_video
from sooner.tasks.caption import CaptionCallbacks, caption, verify
from sooner.tasks.loading import ModelPair, load_pair
from tasks import videos
from tasks.fixtures import checkpoint
from tasks.test_task_families import PROCESSORS, SETTINGS, pair_of

BATCH, CHUNK = 4, 16
ASK = replace(SETTINGS, frames=21)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processing_smolvlm, "num2words", str)
        patch.setattr(vision, "FRAMES", BATCH)
        patch.setattr(clip, "MANY", 2 * BATCH)
        patch.setattr(long_video, "CHUNK", CHUNK)
        yield


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("film")
    return videos.write(folder / "a.mp4", frames=60, size=(56, 56), rate=8, noise=True)


@pytest.fixture(scope="module", params=[*PROCESSORS, "llava_onevision", "smolvlm"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    family, folder = request.param, tmp_path_factory.mktemp(request.param)
    if family in PROCESSORS:
        made = pair_of(family)
    elif family == "smolvlm":
        made = load_pair(str(published.write(folder / "SmolVLM2-500M-Video-Instruct")))
    else:
        made = load_pair(*(str(checkpoint(folder / str(seed), seed, 4000)) for seed in (0, 1)))
    if not vision.takes_batches(adapt(made.target.model)):
        pytest.skip("this transformers takes no features")
    return made


@pytest.mark.parametrize("is_cut", [False, True])
def test_batches_give_the_prompt_of_all_frames(
    film: Path, pair: ModelPair, is_cut: bool, tmp_path: Path
) -> None:
    if is_cut:  # such a file is begun anew, with other frames
        film = videos.overwrite(film, tmp_path / "cut.mp4", 0.8, 0.9)
    whole = clip.prepare(film, pair, ASK)
    parts = clip.prepare(film, pair, ASK, on_estimate=lambda estimate: None)
    assert parts.frames.info == whole.frames.info
    assert (bool(whole.frames.info.damage), bool(parts.estimate)) == (is_cut, True)
    ours, reference = (adapt(pair.target.model).embed_prompt(r.inputs) for r in (parts, whole))
    for name in ("embeds", "positions", "frames", "extras"):
        mine, other = getattr(ours, name), getattr(reference, name)
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_a_long_video_is_never_whole_in_memory(
    film: Path, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, list[Any]] = {"frames": [], "layer": [], "encoded": [], "prefilled": []}
    process = long_video.FrameStream.process

    def counted(self: Any, pixels: Any, start: int = 0) -> Any:
        sizes["frames"].append(len(pixels))
        return process(self, pixels, start)

    monkeypatch.setattr(long_video.FrameStream, "process", counted)
    ask = replace(ASK, method="speculative" if pair.draft is not None else "prompt-lookup")
    callbacks = CaptionCallbacks(
        on_decode=lambda *count: sizes["encoded"].append(count),
        on_prefill=lambda *count: sizes["prefilled"].append(count),
        on_estimate=lambda estimate: [part.clear() for part in sizes.values()],
    )  # fmt: skip
    first = adapt(pair.target.model).decoder.layers[0]
    with ForwardHooks() as hooks:
        hooks.before(first, lambda layer, args, _: sizes["layer"].append(args[0].shape[1]))
        record = caption(film, pair, ask, callbacks)
    width, frames, takes = (record[name] for name in ("prompt_tokens", "frames", "estimate"))
    assert (max(sizes["frames"]), max(sizes["layer"])) == (BATCH, CHUNK)
    assert [done for done, _ in sizes["encoded"]] == [*range(BATCH, frames, BATCH), frames]
    assert (*sizes["prefilled"][-1], takes["prompt_tokens"]) == (width, width, width)
    slots = sum(adapt(part.model).slot_bytes for part in (pair.target, pair.draft) if part)
    assert takes["cache_bytes"] == slots * (width + ask.max_new_tokens)
    whole = verify(film, pair, ask)  # with all pixels together
    assert (whole["verdict"], whole["text"]) == ("identical", record["text"])


def test_what_can_not_fit_is_refused_with_frames_that_do(
    film: Path, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates: list[dict[str, Any]] = []
    clip.prepare(film, pair, ASK, on_estimate=estimates.append)
    gib = estimates[0]["gib"]
    free = gib["needed"] - 0.6 * (gib["cache"] + gib["embeddings"])
    monkeypatch.setattr(long_video, "free_memory", lambda model: round(free * 2**30))
    with pytest.raises(MemoryRanOutError, match=r"needed .*--frames \d+ fits or --dtype") as error:
        clip.prepare(film, pair, ASK, on_estimate=estimates.append)
    fits = int(str(error.value).split("--frames ")[1].split()[0])
    assert fits in (6, 8)
    assert len(estimates) == 1


def test_offloading_is_named_where_it_makes_a_video_fit(
    film: Path, pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates: list[dict[str, Any]] = []
    offloaded = replace(ASK, kv_offload=True)
    for settings in (ASK, offloaded):  # without a GPU it is two layers more
        clip.prepare(film, pair, settings, on_estimate=estimates.append)
    cpu = [estimate["gib"]["needed"] for estimate in estimates]
    assert cpu[1] > cpu[0]
    monkeypatch.setattr(long_video, "gpus_of", lambda model: [torch.device("cuda")])
    monkeypatch.setattr(long_video, "free_memory", lambda model: 1 << 40)
    clip.prepare(film, pair, offloaded, on_estimate=estimates.append)
    gib = estimates[-1]["gib"]
    layers = adapt(pair.target.model).layers
    if layers <= 2:  # there is nothing to save
        assert gib["needed"] == pytest.approx(cpu[0])
        return
    assert gib["needed"] < cpu[0]
    assert gib["host"] >= estimates[0]["gib"]["cache"] - gib["cache"]
    free = (gib["needed"] + cpu[0]) / 2
    monkeypatch.setattr(long_video, "free_memory", lambda model: round(free * 2**30))
    clip.prepare(film, pair, offloaded, on_estimate=estimates.append)
    for available, words in ((1 << 50, "--kv-offload fits"), (1, r"needed")):
        memory = type("Memory", (), {"available": available})
        monkeypatch.setattr(long_video.psutil, "virtual_memory", lambda made=memory: made)
        with pytest.raises(MemoryRanOutError, match=words) as error:
            clip.prepare(film, pair, ASK, on_estimate=estimates.append)
        assert ("--kv-offload" in str(error.value)) is (available > 1)
    with pytest.raises(MemoryRanOutError, match=r"host \d.*host free 0.00; "):
        clip.prepare(film, pair, offloaded, on_estimate=estimates.append)
    half = type("Memory", (), {"available": round(gib["host"] * 2**30) // 2})
    monkeypatch.setattr(long_video.psutil, "virtual_memory", lambda: half)
    with pytest.raises(MemoryRanOutError, match=r"--frames 10 fits"):
        clip.prepare(film, pair, offloaded, on_estimate=estimates.append)


def test_a_video_is_captioned_from_host_memory(film: Path, pair: ModelPair) -> None:
    ask = replace(ASK, method="speculative" if pair.draft is not None else "prompt-lookup")
    device, host = (
        caption(film, pair, replace(ask, kv_offload=is_offloaded)) for is_offloaded in (False, True)
    )
    assert host["text"] == device["text"]
    assert host["settings_hash"] == device["settings_hash"]
