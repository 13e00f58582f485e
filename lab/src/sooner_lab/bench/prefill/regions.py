"""Where an index holds that was estimated in one stretch of a prompt (MMInference, figure 12)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sooner.models import Adapter
from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import LineIndex
from sooner.sparse.patterns import VerticalSlash
from sooner.sparse.patterns.base import build
from sooner.sparse.plane import Plane, whole
from sooner.sparse.probe import probe
from sooner.sparse.search.capture import capture
from sooner.tasks.loading import Loaded, ModelPair

from ...needles.rendering import Part, place, process
from ...worlds.video import world
from .layer import Progress
from .prompts import FPS, clip_frames
from .settings import PrefillSettings

VIDEOS, FRAMES, SENTENCES = 3, 16, 4
"""Videos of the prompt, frames of each, sentences between them."""
FAILS, HOLDS = 0.8, 0.9
"""Shares of a recall below which an index fails elsewhere, and from which it holds there."""
ASKED = 64
"""Queries of a stretch whose attention is measured."""
SHARE = 16
"""One in so many keys is a vertical line, and one in so many distances a slash line."""


def regions(
    settings: PrefillSettings, pair: ModelPair, adapter: Adapter, progress: Progress
) -> dict[str, Any]:
    """Recall of each stretch's vertical-slash index on the queries of every stretch.

    Returns:
        `sources` and `queries`, names of the stretches in order; `recall`, a line for each source,
        averaged over layers, heads and queries; `lines`, how many of each kind an index has;
        `claims`, what the paper's figure says and whether it is so here.
    """
    progress("regions: real attention on three videos with text between them")
    with torch.inference_mode():
        prompt = adapter.embed_prompt(interleaved(pair.target, settings.seed))
    layout = PromptLayout.of(prompt, 0)
    stretches = found_stretches(layout)
    names = [name for name, _ in stretches]
    lines = max(len(layout) // SHARE, 1)
    total = torch.zeros(len(stretches), len(stretches), dtype=torch.double)
    seen = 0

    def add(number: int, states: States) -> None:
        nonlocal seen
        total.add_(recalls(states, layout, [slots for _, slots in stretches], lines))
        seen += 1

    capture(adapter, prompt, add)
    recall = (total / seen).tolist()
    told = {"sources": names, "queries": names, "recall": recall, "lines": lines}
    return {"regions": {**told, "claims": claims(names, recall)}}


def claims(names: list[str], recall: list[list[float]]) -> list[dict[str, Any]]:
    """The two things that figure 12 shows (section F), against a table of recalls.

    Returns:
        for each that the stretches allow to ask: `claim`; `here`, the recall that it is about;
        `beside`, the one that it is held against; `wanted`, the bound on their ratio; `holds`.
    """

    def mean(source: str, asked: str, is_own: bool | None = None) -> float | None:
        found = [
            recall[row][column]
            for row, one in enumerate(names)
            for column, other in enumerate(names)
            if one.startswith(source) and other.startswith(asked)
            if is_own is None or is_own == (row == column)
        ]
        return fmean(found) if found else None

    text, video = mean("text", "text"), mean("text", "video")
    own, others = mean("video", "video", True), mean("video", "video", False)
    made = []
    if text is not None and video is not None:
        claim = "an index from text holds on text and fails on video"
        bound = {"wanted": f"below {FAILS:g}", "holds": video < FAILS * text}
        made.append({"claim": claim, "here": video, "beside": text, **bound})
    if own is not None and others is not None:
        claim = "an index from one video holds on the other videos"
        bound = {"wanted": f"at least {HOLDS:g}", "holds": others >= HOLDS * own}
        made.append({"claim": claim, "here": others, "beside": own, **bound})
    return made


def interleaved(target: Loaded, seed: int, frames: int = FRAMES) -> dict[str, Any]:
    """Inputs of a message in which videos and sentences of the miniature's world take turns."""
    parts: list[Part] = []
    for number in range(VIDEOS):
        rng = np.random.default_rng([seed, number])
        words = (world.describe(world.sample_scene(rng), place) for place in range(SENTENCES))
        parts += [clip_frames(frames, seed + number, scenes=2).pixels, " ".join(words)]
    return place(process(target.processor, tuple(parts), FPS), target.model)


def found_stretches(layout: PromptLayout) -> list[tuple[str, Tensor]]:
    """Runs of one modality with `ASKED` tokens or more, named and numbered in order."""
    kinds = layout.modality
    edges = (kinds.diff() != 0).nonzero()[:, 0] + 1
    bounds = [0, *edges.tolist(), len(kinds)]
    counts: dict[str, int] = {}
    found = []
    for start, stop in pairwise(bounds):
        name = {0: "text", 1: "image", 2: "video"}.get(int(kinds[start]), "padding")
        if name == "padding" or stop - start < ASKED:
            continue
        counts[name] = counts.get(name, 0) + 1
        found.append((f"{name} {counts[name]}", torch.arange(start, stop, device=kinds.device)))
    return found


def recalls(states: States, layout: PromptLayout, stretches: list[Tensor], lines: int) -> Tensor:
    """Recall `[sources, stretches]` of one layer, averaged over its heads."""
    plane = whole(layout)
    asked = [slots[-ASKED:] for slots in stretches]
    weights = [_weights(states, plane, slots) for slots in asked]  # [heads, asked, keys] each
    result = torch.zeros(len(stretches), len(stretches), dtype=torch.double)
    for source, slots in enumerate(stretches):
        index = stretch_index(states, plane, slots, lines)
        for other, queries in enumerate(asked):
            kept = [
                (weights[other][head] * index.seen(head, plane, queries)).sum(1).mean()
                for head in range(index.heads)
            ]
            result[source, other] = torch.stack(kept).double().mean()
    return result


def stretch_index(states: States, plane: Plane, slots: Tensor, lines: int) -> LineIndex:
    """The vertical-slash index that the last queries of one stretch give."""
    part = replace(plane, queries=slots, frontier=plane.frontier[slots])
    estimate = probe(states.queries, states.keys, part, states.scale)
    index = build([VerticalSlash(lines, lines)] * len(states.queries), part, estimate)
    assert isinstance(index, LineIndex)
    return index


def _weights(states: States, plane: Plane, slots: Tensor) -> Tensor:
    """Dense attention of some queries, `[heads, asked, keys]`."""
    keys = states.keys.repeat_interleave(states.group, 0).float()
    scores = states.queries[:, slots].float() @ keys.transpose(1, 2) * states.scale
    later = torch.arange(keys.shape[1], device=slots.device) > plane.frontier[slots, None]
    return scores.masked_fill(later, -torch.inf).softmax(-1)
