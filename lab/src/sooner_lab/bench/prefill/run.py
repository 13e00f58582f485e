"""The whole of `sooner bench prefill`, part by part, and its goals."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from sooner import miniatures
from sooner.models import Adapter, adapt
from sooner.sparse.attention.run import backend_for
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import Grid
from sooner.sparse.search import Search, SearchSample, SearchSettings
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.search import search_patterns
from sooner.tasks.settings import CaptionSettings

from ...worlds.needle.task import KINDS, LetterTask
from ..goals import goal
from ..run import Data, Keep, Progress, Recorder
from .layer import layer
from .model import model
from .needles import needles
from .page import PAGE
from .prompts import embed
from .rivals import Comparison
from .settings import PARTS, PrefillSettings
from .text import TextTask

SEARCHED = 120
"""Frames of the clip on which the `ours` arm is searched when no file is given."""

MIN_RECALL = 0.8
"""Recall of a head of a model of text below which it is left dense."""


def run(
    settings: PrefillSettings,
    progress: Progress = print,
    keep: Keep | None = None,
    before: Data | None = None,
) -> Data:
    """Measure and return the result: `layer` and `model_rows`, a row for each arm and length,
    `needles` and `heads`. Parts of `before`, an earlier result, stay where this run does
    not measure them anew.

    Raises:
        SoonerError: `before` is of another model.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    progress("loading")
    pair = load_pair(settings.model, sees=False, device=settings.device, dtype=settings.dtype)
    adapter = adapt(pair.target.model)
    name = f"miniature:{pair.miniature}" if pair.miniature else pair.target.name
    backend = backend_for(adapter.device).name
    about = {"model": name, "reads": "text" if pair.target.is_text else "video"}
    recorder = Recorder("prefill", settings, goals, keep, **about, backend=backend)
    others = [key for part, key in PARTS.items() if part not in settings.parts]
    recorder.go_on(before, [*others, *chain.from_iterable(PAGE.retired.values())])
    recorder.origin(adapter.device, adapter.dtype, settings.seed)
    ours = Patterns(settings, pair, adapter)
    if "layer" in settings.parts:
        recorder.add(layer=layer(settings, adapter.device, adapter.dtype, progress))
    if "model" in settings.parts:
        recorder.add(model_rows=model(settings, pair, adapter, ours.table, progress))
    if "needles" in settings.parts:
        if pair.miniature:  # the video miniature sees no needles
            small = load_pair(miniature="needle", device=settings.device, dtype=settings.dtype)
            table = Patterns(settings, small, adapt(small.target.model)).table
            recorder.add(needles=needles(settings, small, table, progress))
        else:
            recorder.add(needles=needles(settings, pair, ours.table, progress))
    if {"rivals", "ablations"} & {*settings.parts}:
        recorder.add(**Comparison(settings, pair, adapter, progress).run())
    return recorder.result


class Patterns:
    """The patterns of the `ours` arm: those of the file, or searched when first read; `None` where
    the arm does not run."""

    def __init__(self, settings: PrefillSettings, pair: ModelPair, adapter: Adapter) -> None:
        self.settings, self.pair, self.adapter = settings, pair, adapter

    @cached_property
    def table(self) -> PatternTable | None:
        if "ours" not in self.settings.arms:
            return None
        if self.settings.patterns is not None:
            return PatternTable.load(self.settings.patterns, self.adapter)
        table = self._search()
        if self.settings.save_patterns is not None:
            table.save(self.settings.save_patterns)
        return table

    def _search(self) -> PatternTable:
        # On a model of text, heads of low recall are left dense. Of videos none is, as none of the
        # other arms' is, and patterns are priced by the clock: on a CPU, those of equal FLOPs
        # differ by several times.
        search = SearchSettings(budget=self.settings.budget, max_error=1e9, break_even=False)
        if self.pair.target.is_text:
            tasks: list[Any] = [TextTask(self.pair.target.tokenizer)]
            search = replace(search, min_recall=MIN_RECALL, break_even=True)
            return self._searched(tasks, search)
        if self.pair.miniature == "needle":
            tasks = [LetterTask(self.pair.target.processor, kind) for kind in KINDS]
            return self._searched(tasks, search)
        search = replace(search, cost="measured")
        with tempfile.TemporaryDirectory() as folder:
            clips = [miniatures.find("video").function("clip")(Path(folder), SEARCHED, 7)]
            return search_patterns(self.pair, clips, search, CaptionSettings(frames=SEARCHED))

    def _searched(self, tasks: Sequence[Any], settings: SearchSettings) -> PatternTable:
        """Search on other prompts with other needles; those of text have no grids."""
        length, seed = max(self.settings.lengths), self.settings.seed + self.settings.needles
        samples = [self._embedded(task.sample(length, 0.5, seed)) for task in tasks]
        search = Search(self.adapter, samples, settings)
        if self.pair.target.is_text:
            known = (each for each in search.candidates if not isinstance(each, Grid))
            search.candidates = tuple(known)
            search.prices = torch.ones(len(search.candidates), dtype=torch.double)
        return search.run()

    def _embedded(self, sample: Any) -> SearchSample:
        prompt = embed(self.adapter, sample, self.pair.target.processor)
        return SearchSample(lambda: prompt, PromptLayout.of(prompt, 0))


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured, with the `recall` of the very run; goals were
    fixed before any result."""
    rows = []
    if grid := longest(result.get("layer") or [], "grid"):
        where, recall = f"one layer, {grid['tokens']} tokens", grid.get("recall")
        name = f"{where}: grid over dense, index inside"
        rows.append(goal(name, 8.0, grid["speedup"], recall=recall))
        name = f"{where}: share of what grid's FLOPs allow"
        rows.append(goal(name, 0.7, grid["of_allowed"], recall=recall))
    ours = longest(result.get("model_rows") or [], "ours")
    if result.get("reads") == "text":
        return rows + _text_goals(result, ours)
    if ours:
        name = f"whole prefill, {ours['tokens']} tokens: ours over dense"
        rows.append(goal(name, 3.0, ours["speedup"], recall=ours.get("recall")))
    return rows


def _text_goals(result: Data, ours: Data | None) -> list[Data]:
    """Return the goals of a model of text, at its greatest length."""
    rows, right = [], {"dense": 0, "ours": 0}
    if ours:
        where = f"text, {ours['tokens']} tokens: "
        rows.append(goal(f"{where}recall of ours", 0.95, ours["recall"]))
        rows.append(goal(f"{where}prefill of ours over dense", 1.0, ours["speedup"]))
    for grid in result.get("needles") or []:
        right[grid["name"]] = right.get(grid["name"], 0) + sum(grid["right"][-1])
    if right["dense"]:
        share = right["ours"] / right["dense"]
        rows.append(goal("needles, greatest length: right of ours over dense", 0.95, share))
    return rows


def longest(rows: list[Data], method: str) -> Data | None:
    """Return the row of one arm at the greatest length."""
    matches = [row for row in rows if row["method"] == method]
    return max(matches, key=lambda row: row["tokens"]) if matches else None
