"""Which frame a token belongs to, over all kinds of prompts."""

from __future__ import annotations

from itertools import groupby

import pytest

import tiny
from sooner.models import adapt

FRAMES = {"llava_onevision": 4, "qwen2_5_vl": 2, "qwen3_vl": 2}


@pytest.mark.parametrize("family", FRAMES)
def test_frames_are_counted_within_videos_and_apart_between_them(family: str) -> None:
    """Rows without any, with a video, and with an image before or behind a video."""
    inputs = tiny.inputs(family, "uneven", 5)
    prompt = adapt(tiny.model(family)).embed_prompt(inputs)
    last = -10
    for row, videos in enumerate((0, 1, 0, 0, 1)):
        numbers = [number for number in prompt.frames[row].tolist() if number >= 0]
        runs = [(number, len(list(run))) for number, run in groupby(numbers)]
        assert len(runs) == videos * FRAMES[family]
        assert all(size == 4 for _, size in runs)
        assert [number - runs[0][0] for number, _ in runs] == list(range(len(runs)))
        if runs:
            assert runs[0][0] > last + 1, "a gap between two videos"
            last = runs[-1][0]
    inside = prompt.frames >= 0
    assert bool((prompt.visual | ~inside).all())
