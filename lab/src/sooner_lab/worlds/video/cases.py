"""Held-out cases of long clips: even and uneven scenes, needles by depth, pruned prompts.

The clips with two frames a scene are `evaluate`'s; these tell whether a checkpoint reads clips
in which most frames are redundant, and whether it still predicts captions from a tenth of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from . import data, evaluate, losses, pacing, world

SEED = 90_002  # training draws from small seeds
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
TOGETHER = 8  # clips captioned at once
NEEDLE_IN = 48  # frames of a needle's clip
TENTH = (0.9, 0.9)  # share of visual tokens dropped


def even(rng: np.random.Generator, count: int) -> list[world.SceneClip]:
    """Six scenes of eight frames each."""
    return [pacing.paced_clip(rng, (8,) * 6) for _ in range(count)]


def uneven(rng: np.random.Generator, count: int) -> list[world.SceneClip]:
    """Six scenes of 1 to 16 frames, at most 64 in all.

    `TOGETHER` clips have the same lengths, each in an order of its own: of equal size, they are
    captioned in one batch.
    """
    clips = []
    for begin in range(0, count, TOGETHER):
        frame_counts = pacing.uneven(rng, 6)
        some = min(TOGETHER, count - begin)
        clips += [pacing.paced_clip(rng, rng.permutation(frame_counts)) for _ in range(some)]
    return clips


CLIPS: dict[str, Callable[[np.random.Generator, int], list[world.SceneClip]]] = {
    "even_8_scenes_6": even,
    "uneven_scenes_6": uneven,
}


def draw(name: str, count: int) -> list[world.SceneClip]:
    """The held-out clips of a case of `CLIPS`."""
    return CLIPS[name](np.random.default_rng(SEED), count)


def needles(depth: float, count: int) -> list[pacing.NeedleClip]:
    """Needles of 1, 2, 3, 1, ... frames at a depth."""
    rng = np.random.default_rng([SEED, round(100 * depth)])
    few, many = pacing.NEEDLE
    lengths = [few + index % (many - few + 1) for index in range(count)]
    return [pacing.needle_clip(rng, NEEDLE_IN, depth, length) for length in lengths]


def measure(model: Any, processor: Any, count: int) -> dict[str, Any]:
    """Accuracy 0..1 on `count` held-out clips of each case.

    Returns:
        For each of `CLIPS`, and for a quarter of the uneven ones as H.264 files, as
        `evaluate.score_clips`;
        "needle_depth_*": the same of the needle's scene alone; "next_token": see there.
    """
    figures: dict[str, Any] = {
        name: evaluate.score_clips(model, processor, draw(name, count), batch=TOGETHER)
        for name in CLIPS
    }
    clips = draw("uneven_scenes_6", max(count // 4, 1))
    figures["uneven_scenes_6_h264"] = evaluate.score_clips(
        model, processor, clips, videos=[from_file(clip) for clip in clips], batch=8
    )
    for depth in DEPTHS:
        name = f"needle_depth_{round(100 * depth)}"
        figures[name] = score_needles(model, processor, needles(depth, count))
    figures["next_token"] = next_token(model, draw("uneven_scenes_6", count))
    return figures


def score_needles(
    model: Any, processor: Any, hidden: Sequence[pacing.NeedleClip], batch: int = TOGETHER
) -> dict[str, float]:
    """Mean accuracy on the needles' scenes; "exact": captions that hold the right sentence."""
    clips = [needle.clip for needle in hidden]
    texts = evaluate.captions(model, processor, clips, batch=batch)
    rows = []
    for text, needle in zip(texts, hidden, strict=True):
        output, sentence = (_plain(processor, words) for words in (text, needle.answer))
        rows.append({**needle.score(text), "exact": float(sentence in output)})
    return evaluate.mean(rows)


def _plain(processor: Any, text: str) -> str:
    return " ".join(processor.tokenizer.tokenize(text))


def from_file(clip: world.SceneClip) -> np.ndarray:
    """The shown frames of a clip as they come back from an H.264 file."""
    from .film import through_file

    return through_file(clip)[world.sample_indices(clip.total_frames, clip.samples)]


@torch.no_grad()
def next_token(model: Any, clips: Sequence[world.SceneClip]) -> dict[str, float]:
    """The share of caption tokens predicted right from the right tokens before them.

    Returns:
        "full" with every visual token, "tenth" with a random tenth of them at their own
        positions: what a draft with a pruned prompt has to do.
    """
    writer, rng = data.CaptionRowWriter(), np.random.default_rng(SEED)
    first = len(writer.head)
    right: dict[str, list[float]] = {"full": [], "tenth": []}
    for clip in clips:
        frames = torch.from_numpy(evaluate.film_of(clip)).permute(0, 3, 1, 2).float() / 255
        small = torch.nn.functional.avg_pool2d(frames, 2)  # to the tower's side
        tokens = losses.see(model, data.normalise(small)).flatten(0, 1)[None]
        sentences = [writer.sentence(scene) for scene in clip.scenes]
        batch = writer.write(rng, [sentences], len(frames))
        video = range(first, first + tokens.shape[1] + 1)
        positions = data.places_to_keep(rng, 1, batch.ids.shape[1], video, TENTH)
        for name, places in (("full", None), ("tenth", positions)):
            right[name].append(losses.predict(model, batch, tokens, first, False, places)[1])
    return {name: float(np.mean(shares)) for name, shares in right.items()}
