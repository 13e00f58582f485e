"""The frames that a model sees are those that its own processor would have taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    LlavaOnevisionVideoProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLVideoProcessor,
)

from sooner.errors import SoonerError
from sooner.tasks import frames
from sooner.tasks.frames import Sampler, metadata
from sooner.tasks.video import VideoInfo, probe
from tasks import videos

SMALL = {"size": {"shortest_edge": 28 * 28, "longest_edge": 128 * 128 * 16}}
PROCESSORS: dict[str, Any] = {
    "llava": lambda: LlavaOnevisionVideoProcessor(
        size={"height": 28, "width": 28}, do_sample_frames=True, num_frames=8
    ),
    "llava-fps": lambda: LlavaOnevisionVideoProcessor(
        size={"height": 28, "width": 28}, do_sample_frames=True, fps=3
    ),
    "qwen2": lambda: Qwen2VLVideoProcessor(**SMALL, do_sample_frames=True, fps=2),
    "qwen3": lambda: Qwen3VLVideoProcessor(**SMALL),
}


def info_of(count: int, fps: float = 10.0) -> VideoInfo:
    return VideoInfo(Path("a.mp4"), count, fps, count / fps, 64, 48)


@pytest.mark.parametrize("options", [{}, {"num_frames": 6}, {"fps": 4}], ids=str)
@pytest.mark.parametrize("name", PROCESSORS)
def test_same_pixels_as_the_processor_alone(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """The whole video through the processor's own sampling, against only the frames we decode."""
    info = probe(videos.write(tmp_path / "a.mp4", frames=47, noise=True))
    whole = frames.read(info, lambda known: range(known.frames)).pixels
    processor = PROCESSORS[name]()
    other = {"num_frames": "fps", "fps": "num_frames"}
    arguments = {other[key]: None for key in options} | options
    alone = PROCESSORS[name]()
    if "fps" in options:  # else the default number would win over the rate that was asked for
        alone.num_frames = None
    expected = alone(
        [torch.from_numpy(whole)], video_metadata=[metadata(info)], do_sample_frames=True,
        return_metadata=True, return_tensors="pt", **arguments,
    )  # fmt: skip
    sampler = Sampler(processor, options.get("num_frames"), options.get("fps"))
    some = frames.read(info, sampler)
    ours = processor(
        [torch.from_numpy(some.pixels)], video_metadata=[metadata(info, some.indices)],
        do_sample_frames=False, return_metadata=True, return_tensors="pt",
    )  # fmt: skip
    assert list(expected["video_metadata"][0].frames_indices) == some.indices
    assert torch.equal(expected["pixel_values_videos"], ours["pixel_values_videos"])
    assert expected["video_metadata"][0].sampled_fps == ours["video_metadata"][0].sampled_fps


def test_what_can_not_be_sampled_is_refused() -> None:
    processor = PROCESSORS["qwen2"]()
    with pytest.raises(SoonerError, match="use --frames 2"):
        Sampler(processor, frames=1)(info_of(100))
