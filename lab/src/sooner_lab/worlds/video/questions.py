"""New clips of the world: processed inputs to record a target on, and long videos to search on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import film, world

SCENES, ROWS = (2, 7), 4
"""Scenes of a clip that is asked about, from and below, and clips of a batch."""

SEED = 52_000
"""Seeds of clips that are asked about begin here, far from those of training and of evaluation."""

LONG_SCENES = 12
"""Scenes of a long clip, at most."""


def ask(pair: Any, samples: int) -> Iterator[dict[str, Any]]:
    """Processed inputs of new clips, `ROWS` a batch.

    Args:
        pair: a `sooner.tasks.loading.ModelPair`; its target's processor and dtype.
        samples: clips, rounded up to whole batches.
    """
    span = SCENES[1] - SCENES[0]
    for number in range(-(-samples // ROWS)):
        clips = sample_clips(SEED + number, ROWS, SCENES[0] + number % span)
        films, frames = [world.render(clip) for clip in clips], 2 * len(clips[0].scenes)
        batch = build_inputs(pair.target.processor, films, frames)
        yield {
            name: value.to(pair.target.model.dtype) if name.startswith("pixel_values") else value
            for name, value in batch.items()
        }


def clip(folder: Path, frames: int, seed: int) -> Path:
    """Write a clip of `frames` frames into `folder`; the same every time.

    Its scenes are of uneven lengths: even ones would be a grid of their own.
    """
    rng = np.random.default_rng(seed)
    drawn = world.sample_clip(rng, min(LONG_SCENES, frames)).scenes
    cuts = np.sort(rng.choice(np.arange(1, frames), len(drawn) - 1, replace=False))
    lengths = tuple(int(length) for length in np.diff([0, *cuts, frames]))
    return film.write_video(world.SceneClip(drawn, lengths), folder / f"generated-{seed}.mp4")


def sample_clips(seed: int, count: int, scenes: int) -> list[world.SceneClip]:
    """Return `count` clips of `scenes` scenes from one generator."""
    rng = np.random.default_rng(seed)
    return [world.sample_clip(rng, scenes) for _ in range(count)]


def build_inputs(
    processor: Any, videos: Sequence[np.ndarray], num_frames: int, prompt: str = world.PROMPT
) -> Any:
    """Model inputs for whole videos, uint8 `[frames, height, width, 3]` at the world's fps.

    The processor samples `num_frames` of each itself, as it does for a user's file.
    """
    content = [{"type": "video"}, {"type": "text", "text": prompt}]
    chat = [{"role": "user", "content": content}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True)
    metadata = [
        {"total_num_frames": len(video), "fps": world.FPS, "duration": len(video) / world.FPS}
        for video in videos
    ]
    return processor(
        text=[text] * len(videos),
        videos=list(videos),
        videos_kwargs={"video_metadata": metadata, "num_frames": num_frames},
        return_tensors="pt",
        padding=True,
    )
