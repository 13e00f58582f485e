"""From sample videos to a table of patterns: read, embed, search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..engine.interface import Prompt
from ..errors import SoonerError, is_out_of_memory
from ..models import adapt
from ..sparse.modality import PromptLayout
from ..sparse.search import Search, SearchSample, SearchSettings
from ..sparse.search.run import OnStep
from ..sparse.table import PatternTable
from .clip import prepare
from .frames import Progress
from .identity import sha256
from .loading import ModelPair
from .settings import CaptionSettings


def search_patterns(
    pair: ModelPair, files: Sequence[Path], settings: SearchSettings,
    sampling: CaptionSettings | None = None, sidecar: Path | None = None, *,
    on_decode: Progress = lambda done, total: None,
    on_stage: Callable[[str], None] = lambda name: None,
    on_step: OnStep = lambda stage, done, total: None,
) -> PatternTable:  # fmt: skip
    """Search the patterns of `pair.target` on its samples.

    Args:
        files: the samples' videos.
        sampling: whose `frames`, `fps` and `prompt` say how a video is seen.
        sidecar: file in which an interrupted search is kept; removed at the end.
        on_decode, on_stage: as of `CaptionCallbacks`.
        on_step: told stage, layers done and layers in all.

    Raises:
        SoonerError: a file that is no usable video, or is too long for the model; an accelerator
            whose memory ran out, with fewer frames to try.
    """
    adapter, sampling = adapt(pair.target.model), sampling or CaptionSettings()
    sampling = replace(sampling, method="plain")
    samples, frames = [], 0
    for path in files:
        clip = prepare(path, pair, sampling, on_decode, on_stage)
        frames = max(frames, len(clip.frames.indices))
        with torch.inference_mode():
            prompt = adapter.embed_prompt(clip.inputs)
        samples.append(_sample(prompt, path))
    search = Search(adapter, samples, settings, sidecar, on_step)
    try:
        table = search.run()
    except (RuntimeError, MemoryError) as error:  # which torch's own are as well
        if not is_out_of_memory(error):
            raise
        raise SoonerError(
            f"out of memory after {search.done} layers with {frames} frames; try "
            f"--frames {max(frames // 2, 1)}"
        ) from error
    search.notes.remove()
    return table


def _sample(prompt: Prompt, path: Path) -> SearchSample:
    return SearchSample(lambda: prompt, PromptLayout.of(prompt, 0), sha256(path))
