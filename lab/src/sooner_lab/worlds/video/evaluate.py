"""How good a miniature is on clips it has never seen, through its own processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import checkpoints
from . import words, world

TOGETHER = 16
"""Clips captioned at once."""

FRAMES_A_SCENE = 2
TOKENS_A_SCENE = 26


def sample_clips(seed: int, count: int, scenes: int) -> list[world.SceneClip]:
    """`count` clips of `scenes` scenes from one generator."""
    rng = np.random.default_rng(seed)
    return [world.sample_clip(rng, scenes) for _ in range(count)]


def conversation(prompt: str) -> list[dict[str, Any]]:
    """A chat of one user message: a video and a prompt."""
    content = [{"type": "video"}, {"type": "text", "text": prompt}]
    return [{"role": "user", "content": content}]


def build_inputs(
    processor: Any, videos: Sequence[np.ndarray], num_frames: int, prompt: str = words.PROMPT
) -> Any:
    """Model inputs for whole videos, uint8 `[frames, height, width, 3]` at the world's fps.

    The processor samples `num_frames` of each itself, as it does for a user's file.
    """
    text = processor.apply_chat_template(conversation(prompt), add_generation_prompt=True)
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


@torch.no_grad()
def describe(
    model: Any,
    processor: Any,
    videos: Sequence[np.ndarray],
    *,
    num_frames: int,
    max_new_tokens: int = 320,
    prompt: str = words.PROMPT,
) -> list[str]:
    """Greedy captions of a batch of videos by HF `generate`."""
    inputs = build_inputs(processor, videos, num_frames, prompt)
    inputs["pixel_values_videos"] = inputs["pixel_values_videos"].to(model.dtype)
    was = model.training
    made = model.eval().generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
    model.train(was)
    answers = made[:, inputs["input_ids"].shape[1] :]
    return [text.strip() for text in processor.batch_decode(answers, skip_special_tokens=True)]


def score_clips(
    model: Any, processor: Any, clips: Sequence[world.SceneClip], *, encoded: bool = False
) -> dict[str, float]:
    """Mean accuracy over clips, which have equally many scenes of two frames each.

    Args:
        encoded: send every clip through an H.264 file first.

    Returns:
        `world.ATTRIBUTES` and their mean as "all", plus "exact": the share of captions right to
        the last letter. All 0..1.
    """
    from .film import through_file

    scenes, rows = len(clips[0].scenes), list[dict[str, float]]()
    for begin in range(0, len(clips), TOGETHER):
        some = clips[begin : begin + TOGETHER]
        videos = [through_file(clip) if encoded else world.render(clip) for clip in some]
        frames, tokens = FRAMES_A_SCENE * scenes, TOKENS_A_SCENE * scenes
        texts = describe(model, processor, videos, num_frames=frames, max_new_tokens=tokens)
        for text, clip in zip(texts, some, strict=True):
            right = processor.tokenizer(world.caption(clip)).input_ids
            exact = float(processor.tokenizer(text).input_ids == right)
            rows.append({**world.score(text, clip), "exact": exact})
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {**means, "all": float(np.mean([means[name] for name in world.ATTRIBUTES]))}


def load(folder: Path | str) -> tuple[Any, Any]:
    """A checkpoint folder as (model, processor), by transformers' Auto classes."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    return checkpoints.load(folder, AutoModelForImageTextToText, AutoProcessor)


def evaluate(
    folder: Path | str,
    clips: int = 16,
    scenes: int = 8,
    seed: int = 90_001,
    *,
    encoded: bool = False,
) -> dict[str, float]:
    """Held-out accuracy of a checkpoint: frames -> processor -> greedy `generate` -> score.

    Args:
        folder: of the checkpoint.
        clips: how many clips.
        scenes: scenes in each.
        seed: of the clips; training uses other generators.
        encoded: as of `score_clips`, whose figures are returned.
    """
    return score_clips(*load(folder), sample_clips(seed, clips, scenes), encoded=encoded)
