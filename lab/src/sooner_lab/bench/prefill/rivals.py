"""Rivals and ablations of the sparse prefill on layers' own states, at equal pairs and equal time
(MMInference, tables 1 and 4, figure 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from sooner.engine.interface import Prompt
from sooner.models import Adapter
from sooner.sparse.attention import Partial, States, sparse_attention
from sooner.sparse.attention.run import backend_for, jobs
from sooner.sparse.attention.work import HeadGroup
from sooner.sparse.cost import clock, dense
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import causal, spread
from sooner.sparse.patterns import HeadPattern
from sooner.sparse.plane import Plane, whole
from sooner.sparse.search.run import capture
from sooner.tasks.loading import ModelPair

from ...rivals import indices
from ...rivals.indices import Groups, HeadKind, Rival, count_pairs
from ...rivals.visionzip import visionzip
from ..run import Data, Progress, time_in_turns
from .layer import decide_without, survey_layer
from .model import trained_layers
from .prompts import long_inputs
from .settings import PrefillSettings

LAYERS, QUERIES, ENOUGH = 3, 256, 0.95
"""Most layers that are measured, evenly spread over the trained ones; queries on which they are;
and the attention that figure 2 counts pairs for."""
STATIC = ("a-shape", "tri-shape", "sf-fixed", "sf-strided")
BOUNDARIES = ("q-boundary", "2d-boundary")
LEFT_OUT = ("grid", "vertical-slash", "block-top-p", "a-shape", *BOUNDARIES)
ABLATIONS: dict[str, tuple[str, ...]] = {
    "ours": (), "without boundaries": BOUNDARIES,
    **{f"without {name}": (name,) for name in LEFT_OUT},
}  # fmt: skip
"""What the search of an arm leaves out."""
STEPS = 6
"""Sizes that are tried for a time."""


class DenseRows:
    """Dense attention of a layer's sampled queries, against which outputs are held.

    Attributes:
        places: of the queries, `[queries]`; a prompt has no padding here.
        output, lse: of them, `[heads, queries, head_dim]` and without the last dimension.
        enough: share of the pairs that hold `ENOUGH` of each query's weights.
    """

    def __init__(self, states: States, layout: PromptLayout) -> None:
        self.plane = whole(layout)
        self.places = places = spread(len(layout), QUERIES, states.keys.device)
        keys, values = (
            part.repeat_interleave(states.group, 0).float() for part in (states.keys, states.values)
        )
        scores = states.queries[:, places].float() @ keys.mT * states.scale
        scores.masked_fill_(~causal(self.plane, places)[2], -torch.inf)
        weights = scores.softmax(2)  # [heads, queries, tokens]
        self.output, self.lse = weights @ values, scores.logsumexp(2)
        needed = (weights.sort(descending=True).values.cumsum(2) < ENOUGH).sum(2) + 1.0
        self.enough = float(needed.mean() / (places + 1.0).mean())

    def figures(self, made: Partial) -> Tensor:
        """Return the relative error of each head's output and its recall, `[2, heads]`."""
        recall = (made.lse[:, self.places] - self.lse).exp().clamp(max=1.0).mean(1)
        return torch.stack([relative(made.output[:, self.places], self.output), recall])


def relative(output: Tensor, truth: Tensor) -> Tensor:
    """Return the norm of each head's error over that of its truth, `[heads]`."""
    return (output - truth).norm(dim=(1, 2)) / truth.norm(dim=(1, 2))


class Comparison:
    """Measures rivals and ablations layer by layer, while prompts pass through the model.

    Attributes:
        chosen: by layer, what another prompt chose: patterns by ablation, the indices that `ours`
            had there, and MInference's kinds.
        rows: by layer, dense attention of the prompt that is measured.
        figures: by table and arm, a row a layer.
    """

    def __init__(
        self, settings: PrefillSettings, pair: ModelPair, adapter: Adapter, progress: Progress
    ) -> None:
        self.settings, self.pair, self.adapter, self.progress = settings, pair, adapter, progress
        trained = trained_layers(adapter)
        places = torch.linspace(0, len(trained) - 1, min(LAYERS, len(trained)))
        self.layers, self.backend = [trained[int(p)] for p in places], backend_for(adapter.device)
        self.chosen: dict[int, tuple[dict[str, list[HeadPattern]], Groups, list[HeadKind]]] = {}
        self.rows: dict[int, DenseRows] = {}
        self.figures: dict[tuple[str, str], list[Data]] = defaultdict(list)

    def run(self) -> Data:
        """Return a row for each arm: in `rivals` at equal pairs and at equal time, in `ablations`
        at the search's budget. `seconds` have the index inside, and are sums over layers."""
        first, second = (
            long_inputs(self.pair.target, max(self.settings.lengths), seed, self.pair.prompt)
            for seed in (self.settings.seed + 1, self.settings.seed)
        )
        with torch.inference_mode():
            prompts = [self.adapter.embed_prompt(inputs) for inputs in (first, second)]
        self._read(prompts[0], self._search)
        self._read(prompts[1], self._measure)
        if self.adapter.config.model_type == "llava_onevision":
            self._zip("budget", second)
            if "rivals" in self.settings.parts:
                self._zip("time", second)
        parts: dict[str, list[Data]] = {"rivals": [], "ablations": []}
        for (table, name), rows in self.figures.items():
            row = {"equal": table, "method": name, "tokens": prompts[1].width, "layers": len(rows)}
            for key in rows[0]:
                values = [each[key] for each in rows]
                row[key] = sum(values) if key == "seconds" else fmean(values)
            parts["ablations" if table == "budget" else "rivals"].append(row)
        return {name: rows for name, rows in parts.items() if name in self.settings.parts}

    def _read(self, prompt: Prompt, step: Callable[[int, States, PromptLayout], None]) -> None:
        """Run a prompt through the model, and a step on the states of each measured layer."""
        layout = PromptLayout.of(prompt, 0).to(self.adapter.device)

        def look(layer: int, states: States) -> None:
            if layer in self.layers:
                self.progress(f"rivals, {prompt.width} tokens, layer {layer}")
                step(layer, states, layout)

        capture(self.adapter, prompt, look)

    def _search(self, layer: int, states: States, layout: PromptLayout) -> None:
        surveyed, rows = survey_layer(states, layout), DenseRows(states, layout)
        always = ("grid",) if self.pair.target.is_text else ()
        arms = {
            name: decide_without(surveyed, states, layout, self.settings.budget, *always, *names)
            for name, names in ABLATIONS.items()
            if not names or "ablations" in self.settings.parts
        }
        groups = list(jobs(states, layout, arms["ours"]))

        def recall(groups: Groups) -> Tensor:
            return rows.figures(indices.attend(states, groups, self.backend))[1]

        kinds = indices.search_kinds(states, rows.plane, count_pairs(groups), recall)
        self.chosen[layer] = arms, groups, kinds

    def _measure(self, layer: int, states: States, layout: PromptLayout) -> None:
        arms, groups, kinds = self.chosen[layer]
        rows = self.rows[layer] = DenseRows(states, layout)
        note = partial(self._note, rows, states)
        for name, patterns in arms.items():
            note("budget", name, list(jobs(states, layout, patterns)))
        note("budget", "index of another input", groups)
        if "rivals" not in self.settings.parts:
            return
        heads = torch.arange(len(states.queries), device=states.keys.device)
        mine = list(jobs(states, layout, arms["ours"]))
        tuned = {"dense": [HeadGroup(rows.plane, heads, None, 0)], "ours": mine}
        works: dict[str, Callable[[], Any]] = {
            "dense": partial(dense, states),
            "ours": partial(sparse_attention, states, layout, arms["ours"], self.backend),
        }
        rivals: dict[str, Rival] = {name: partial(indices.static, name) for name in STATIC}
        rivals["minference"] = partial(indices.minference, kinds)
        rivals["flexprefill"] = indices.flexprefill
        seconds: dict[str, float] = {}
        for table in ("pairs", "time"):
            for name, rival in rivals.items():
                run = partial(self._attend, rival, states, rows.plane)
                sized = rival(states, rows.plane)
                if table == "pairs":
                    size = indices.tune(sized, count_pairs(mine))
                else:
                    fits = partial(self._fits, run, seconds["ours"])
                    size = indices.greatest(fits, STEPS)
                tuned[name], works[name] = sized(size), partial(run, size)
            seconds = self._times(works)
            for name, its in tuned.items():
                note(table, name, its, seconds=seconds[name], pairs95=rows.enough)

    def _attend(self, rival: Rival, states: States, plane: Plane, size: float) -> None:
        """Attend as a rival does, its index made anew."""
        indices.attend(states, rival(states, plane)(size), self.backend)

    def _fits(self, run: Callable[[float], Any], seconds: float, size: float) -> bool:
        return clock(partial(run, size), self.adapter.device)[0] <= seconds

    def _times(self, works: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
        times = time_in_turns(works, self.settings.repeats, self.adapter.device)
        return {name: median(seconds) for name, seconds in times.items()}

    def _note(
        self, rows: DenseRows, states: States, table: str, name: str, groups: Groups,
        **others: float,
    ) -> None:  # fmt: skip
        """Add a layer's row: exact pairs, and error and recall on sampled queries."""
        made = indices.attend(states, groups, self.backend)
        error, recall = rows.figures(made).mean(1).tolist()
        pairs = count_pairs(groups) / (rows.plane.pairs * len(made.output))
        row = {"pairs": pairs, "recall": recall, "error": error, **others}
        self.figures[table, name].append(row)

    def _zip(self, table: str, inputs: Mapping[str, Any]) -> None:
        """Measure VisionZip, whose prompt is as short as the pairs or the time of `ours` ask for.

        Its error is that of the tokens that stay, and holds what layers below have lost. Behind it,
        `ours` is held against VisionZip's own dense attention.
        """
        share = fmean(row["pairs"] for row in self.figures["budget", "ours"])
        if table == "time":  # dense attention takes as long as it has pairs
            ours, whole_prompt = (
                sum(row["seconds"] for row in self.figures["time", name])
                for name in ("ours", "dense")
            )
            share = min(ours / whole_prompt, 1.0)
        width, visual = inputs["input_ids"].shape[1], int(self.adapter.visual_tokens(inputs).sum())
        tokens = max(round(width * share**0.5) - (width - visual), 1)
        prompt, slots = visionzip(self.adapter, inputs, tokens)

        def look(layer: int, states: States, layout: PromptLayout) -> None:
            rows = self.rows[layer]
            place = torch.searchsorted(slots, rows.places).clamp(max=len(slots) - 1)
            stays = slots[place] == rows.places
            error = relative(dense(states)[:, place[stays]], rows.output[:, stays]).mean()
            row = {"pairs": whole(layout).pairs / rows.plane.pairs, "error": float(error)}
            seconds = self._times({"": partial(dense, states)})[""]
            equal = "pairs" if table == "budget" else table
            self.figures[equal, "visionzip"].append({**row, "seconds": seconds})
            if table == "budget":
                self.figures[table, "visionzip"].append(row)
                its = list(jobs(states, layout, self.chosen[layer][0]["ours"]))
                self._note(DenseRows(states, layout), states, table, "ours behind visionzip", its)

        self._read(prompt, look)
