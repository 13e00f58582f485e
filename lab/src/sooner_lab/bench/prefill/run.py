"""The whole of `sooner bench prefill`, part by part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sooner.models import Adapter, adapt
from sooner.provenance import provenance
from sooner.sparse.attention.run import backend_for
from sooner.sparse.search import SearchSettings
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.search import Wish, generated_clip, search_patterns

from .duels import duels, planted
from .goals import goals
from .layer import Progress, layer
from .model import model
from .needles import needles
from .plots import drawable
from .regions import regions
from .settings import PrefillSettings

SEARCHED = 120
"""Frames of the clip on which the `ours` arm is searched when no file is given."""

Keep = Callable[[dict[str, Any]], None]


def run(
    settings: PrefillSettings, progress: Progress = print, keep: Keep | None = None
) -> dict[str, Any]:
    """Measure and return the result object.

    Args:
        keep: handed the result as far as it is, after each part, so that nothing is lost.

    Returns:
        `layer` and `model_rows`, a row for each arm and length; `regions`, `needles`; `goals`,
        `provenance`.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    progress("loading")
    pair = load_pair(settings.model, device=settings.device, dtype=settings.dtype)
    adapter = adapt(pair.target.model)
    told = {name: value for name, value in asdict(settings).items() if name != "patterns"}
    result: dict[str, Any] = {
        "bench": "prefill",
        "model": f"miniature:{pair.miniature}" if pair.miniature else pair.target.name,
        "settings": told,
        "backend": backend_for(adapter.device).name,
        "provenance": provenance(str(adapter.device), _name(adapter.dtype), settings.seed),
    }
    ours = Patterns(settings, pair, adapter)
    for name in settings.parts:
        result |= PARTS[name](settings, ours, progress)
        result["goals"], result["figures"] = goals(result), drawable(result)
        if keep is not None:
            keep(result)
    return result


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
            wish = Wish((clip,), frames=SEARCHED)
            return search_patterns(self.pair, wish, self._search).table

    @property
    def _search(self) -> SearchSettings:
        # Priced by the clock: on a CPU, patterns of equal FLOPs differ by several times. No head
        # is left dense, as none of the other arms' is.
        return SearchSettings(budget=self.settings.budget, cost="measured", max_error=1e9)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


PARTS: dict[str, Callable[[PrefillSettings, Patterns, Progress], dict[str, Any]]] = {
    "layer": lambda settings, ours, progress: {
        "layer": layer(settings, ours.adapter.device, ours.adapter.dtype, progress)
    },
    "planted": lambda settings, ours, progress: planted(settings, progress),
    "regions": lambda settings, ours, progress: regions(
        settings, ours.pair, ours.adapter, progress
    ),
    "model": lambda settings, ours, progress: {
        "model_rows": model(settings, ours.pair, ours.adapter, ours.table, progress)
    },
    "duels": lambda settings, ours, progress: duels(settings, ours.pair, ours.adapter, progress),
    "needles": lambda settings, ours, progress: needles(settings, ours.pair, ours.table, progress),
}
"""What each part adds to the result."""
