"""How good a miniature is on clips it has never seen, through its own processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sooner.models import silent

from . import words, world

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


def frame_count(clip: world.SceneClip) -> int:
    """How many frames of a clip a model gets: its own samples, or two a scene."""
    return clip.samples if clip.lengths else FRAMES_A_SCENE * len(clip.scenes)


def film_of(clip: world.SceneClip) -> np.ndarray:
    """A clip as a video to caption; of one with lengths of its own only the shown frames.

    The processor, asked for as many frames as there are, then takes each: a minute of film would
    be a hundred megabytes.
    """
    if not clip.lengths:
        return world.render(clip)
    return world.render(clip, world.sample_indices(clip.total_frames, clip.samples))


def captions(
    model: Any,
    processor: Any,
    clips: Sequence[world.SceneClip],
    *,
    videos: Sequence[np.ndarray] | None = None,
    batch: int = 16,
) -> list[str]:
    """Greedy captions of any clips, those of equal size in batches; arguments of `score_clips`."""
    sizes = [(frame_count(clip), len(clip.scenes)) for clip in clips]
    texts = [""] * len(clips)
    for size in sorted(set(sizes)):
        alike = [index for index in range(len(clips)) if sizes[index] == size]
        for begin in range(0, len(alike), batch):
            some = alike[begin : begin + batch]
            films = [videos[index] if videos else film_of(clips[index]) for index in some]
            frames, scenes = size
            made = describe(
                model,
                processor,
                films,
                num_frames=frames,
                max_new_tokens=TOKENS_A_SCENE * scenes,
            )
            for index, text in zip(some, made, strict=True):
                texts[index] = text
    return texts


def score_clips(
    model: Any,
    processor: Any,
    clips: Sequence[world.SceneClip],
    *,
    videos: Sequence[np.ndarray] | None = None,
    batch: int = 16,
) -> dict[str, float]:
    """Mean accuracy over clips.

    Args:
        videos: decoded frames of each clip; None renders them.
        batch: clips captioned at once.

    Returns:
        `world.ATTRIBUTES` and their mean as "all", plus "exact": the share of captions right to
        the last letter. All 0..1.
    """
    texts = captions(model, processor, clips, videos=videos, batch=batch)
    rows: list[dict[str, float]] = []
    for text, clip in zip(texts, clips, strict=True):
        right = processor.tokenizer(text).input_ids
        exact = right == processor.tokenizer(world.caption(clip)).input_ids
        rows.append({**world.score(text, clip), "exact": float(exact)})
    return mean(rows)


def mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of scores, and the mean of the attributes' as "all"."""
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {**means, "all": float(np.mean([means[name] for name in world.ATTRIBUTES]))}


def load(model_dir: Path | str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """A checkpoint folder as (model, processor), by transformers' Auto classes."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(model_dir, dtype=dtype)
    return silent.as_run(model.eval(), model_dir), AutoProcessor.from_pretrained(model_dir)


def evaluate(
    model_dir: Path | str,
    clips: int = 16,
    scenes: int = 8,
    seed: int = 90_001,
    *,
    encoded: bool = False,
) -> dict[str, float]:
    """Held-out accuracy of a checkpoint: frames -> processor -> greedy `generate` -> score.

    Args:
        model_dir: checkpoint folder.
        clips: how many clips.
        scenes: scenes in each.
        seed: of the clips; training uses other generators.
        encoded: send every clip through an H.264 file first.

    Returns:
        As `score_clips`.
    """
    from .film import through_file

    model, processor = load(model_dir)
    drawn = sample_clips(seed, clips, scenes)
    videos = [through_file(clip) for clip in drawn] if encoded else None
    return score_clips(model, processor, drawn, videos=videos)
