"""The whole of `sooner bench prefill`, part by part."""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path

import torch

from sooner.models import Adapter, adapt
from sooner.sparse.attention.run import backend_for
from sooner.sparse.search import SearchSettings
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.search import SearchRequest, generated_clip, search_patterns

from ..run import Data, Keep, Progress, Recorder
from .goals import goals
from .layer import layer
from .model import model
from .needles import needles
from .settings import PrefillSettings

SEARCHED = 120
"""Frames of the clip on which the `ours` arm is searched when no file is given."""


def run(settings: PrefillSettings, progress: Progress = print, keep: Keep | None = None) -> Data:
    """Measure and return the result object.

    Args:
        keep: handed the result as far as it is, after each part, so that nothing is lost.

    Returns:
        `layer` and `model_rows`, a row for each arm and length; `needles`; `goals`, `provenance`.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    progress("loading")
    pair = load_pair(settings.model, device=settings.device, dtype=settings.dtype)
    adapter = adapt(pair.target.model)
    name = f"miniature:{pair.miniature}" if pair.miniature else pair.target.name
    backend = backend_for(adapter.device).name
    recorder = Recorder("prefill", settings, goals, keep, model=name, backend=backend)
    recorder.origin(adapter.device, adapter.dtype, settings.seed)
    ours = Patterns(settings, pair, adapter)
    for part in settings.parts:
        if part == "layer":
            recorder.add(layer=layer(settings, adapter.device, adapter.dtype, progress))
        elif part == "model":
            recorder.add(model_rows=model(settings, pair, adapter, ours.table, progress))
        else:
            recorder.add(**needles(settings, pair, ours.table, progress))
    return recorder.result


class Patterns:
    """The patterns of the `ours` arm: those of the file, or searched when first asked for."""

    def __init__(self, settings: PrefillSettings, pair: ModelPair, adapter: Adapter) -> None:
        self.settings, self.pair, self.adapter = settings, pair, adapter

    @cached_property
    def table(self) -> PatternTable:
        if self.settings.patterns is not None:
            return PatternTable.load(self.settings.patterns, self.adapter)
        with tempfile.TemporaryDirectory() as folder:
            clip = generated_clip(Path(folder), SEARCHED)
            wish = SearchRequest((clip,), frames=SEARCHED)
            return search_patterns(self.pair, wish, self._search).table

    @property
    def _search(self) -> SearchSettings:
        # Priced by the clock: on a CPU, patterns of equal FLOPs differ by several times. No head
        # is left dense, as none of the other arms' is.
        return SearchSettings(budget=self.settings.budget, cost="measured", max_error=1e9)
