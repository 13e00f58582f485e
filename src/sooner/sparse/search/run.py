"""The search: candidates of every head on every sample, priced, then the types, then the table."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from operator import add
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from ...engine.interface import Prompt
from ...errors import SoonerError, UnsupportedError
from ...io import replacing
from ...models import Adapter
from ...models.hooks import AttentionCall, AttentionHooks
from ...provenance import installed
from ..attention import States
from ..attention.run import backend_for
from ..cost import break_even as shortest_faster
from ..cost import measure
from ..modality import PromptLayout
from ..patterns import Dense, HeadPattern, Pattern
from ..plane import whole
from ..settings import SearchSettings
from ..table import (
    HeadEntry,
    PatternTable,
    fingerprint,
    head_shapes,
    model_name,
    windowed_layers,
)
from .heads import decide, shortlist
from .score import Survey, survey, trial
from .space import Space

SHORTEST = 1024
"""Tokens from which break-even is looked for, up to those of the longest sample."""


def prices(candidates: Sequence[Pattern], states: States, layout: PromptLayout) -> Tensor:
    """Time over FLOPs of each candidate, both relative to dense attention, `[candidates]` fp64.

    A price of 1 is a kernel whose pairs cost what dense attention's do. Times are those of all
    heads on real states, the estimate of the lines inside.
    """
    heads, backend = states.queries.shape[0], backend_for(states.queries.device)
    result = []
    for pattern in candidates:
        if isinstance(pattern, Dense):
            result.append(1.0)
            continue
        cost = measure([pattern] * heads, states, layout, backend)
        result.append(cost.relative / max(cost.flops, 1e-9))
    return torch.tensor(result, dtype=torch.double)


def typical(layers: Sequence[Sequence[HeadEntry]]) -> int | None:
    """Returns the number of the layer of median cost among those with a sparse head, if any."""
    sparse = [
        number
        for number, layer in enumerate(layers)
        if any(not isinstance(head.pattern, Dense) for head in layer)
    ]
    ranked = sorted(sparse, key=lambda number: sum(head.cost or 0.0 for head in layers[number]))
    return ranked[len(ranked) // 2] if ranked else None


def break_even(
    patterns: Sequence[HeadPattern], states: States, layout: PromptLayout
) -> tuple[int, str]:
    """Returns the prompt length from which patterns of a layer beat dense attention, and how it was
    measured: on the sample's first tokens, whose states are those of a shorter prompt.

    Args:
        states: of the layer on the whole sample; random ones would have their lines anywhere.
    """
    backend, longest = backend_for(states.queries.device), len(layout)

    def relative(tokens: int) -> float:
        part = states.queries[:, :tokens], states.keys[:, :tokens], states.values[:, :tokens]
        prefix = PromptLayout(layout.modality[:tokens], layout.frames[:tokens])
        return measure(patterns, States(*part, states.scale), prefix, backend, 2).relative

    result = shortest_faster(relative, min(SHORTEST, longest), longest)
    if result is None:
        return longest + 1, f"not faster at {longest} tokens, backend {backend.name}"
    return result, f"measured on one layer, backend {backend.name}"


OnLayer = Callable[[int, States], None]
"""Told `(layer, its rotated states)` of one row, without padding."""


@torch.inference_mode()
def capture(adapter: Adapter, prompt: Prompt, on_layer: OnLayer) -> None:
    """Run a prompt through the language decoder and hand over each layer's states in passing.

    Attention stays dense, no cache is filled, and no more than one layer's states are alive. The
    hooks are gone afterwards, whatever happens.

    Args:
        adapter: of any family.
        prompt: embedded, one row.
        on_layer: called in the order of the layers, before the next one runs.

    Raises:
        UnsupportedError: the model's attention can't be overheard.
    """
    shapes = head_shapes(adapter)

    def hand_over(number: int, module: nn.Module, call: AttentionCall | None, _: Any) -> None:
        if call is None:
            raise UnsupportedError(
                f"{type(module).__name__} called no attention that can be overheard; load the "
                "model with attn_implementation='sdpa'"
            )
        # Keys that were repeated for their heads are taken once.
        step = call.keys.shape[1] // shapes[number][1]
        keys, values = call.keys[0, ::step], call.values[0, ::step]
        on_layer(number, States(call.queries[0], keys, values, call.scale))

    with AttentionHooks() as hooks:
        for number, layer in enumerate(adapter.decoder.layers):
            hooks.around(layer.self_attn, partial(hand_over, number))
        adapter.decoder(
            inputs_embeds=prompt.embeds,
            position_ids=prompt.positions,
            attention_mask=None,
            use_cache=False,
            **prompt.extras,
        )


class Sidecar:
    """A file beside the pattern file that has what was measured of each layer and pass.

    Args:
        path: the file; `None` keeps nothing.
        key: what the search is of: model, samples, settings. What another search left is ignored.
    """

    def __init__(self, path: Path | None, key: str) -> None:
        self.path, self.key = path, key
        self.entries: dict[str, list[Survey]] = {}
        if path is None or not path.is_file():
            return
        try:
            with torch.serialization.safe_globals([Survey]):
                before, entries = torch.load(path, weights_only=True)
        except (OSError, RuntimeError, ValueError, UnpicklingError):  # no file of ours
            return
        if before == key:
            self.entries = entries

    def keep(self, name: str, surveys: Sequence[Survey]) -> None:
        """Writes what was measured of a layer, beside all that was before.

        Raises:
            SoonerError: the file can't be written.
        """
        self.entries[name] = list(surveys)
        if self.path is None:
            return
        try:
            with replacing(self.path) as part:
                torch.save((self.key, self.entries), part)
        except OSError as error:
            raise SoonerError(f"'{self.path}' can't be written: {error.strerror}") from error

    def remove(self) -> None:
        """The search is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


OnStep = Callable[[str, int, int], None]
"""Told `(stage, layers done, layers in all)`; the stages are `survey` and `trial`."""

Measure = Callable[[int, States, PromptLayout], list[Survey]]

CHECK_TURN = 0.5
"""Finished patterns are measured on queries halfway between those that chose them."""


@dataclass(frozen=True)
class SearchSample:
    """One prompt that patterns are searched on.

    Attributes:
        embed: makes the prompt, one row; called for every pass, so that only one is in memory.
        layout: of its tokens.
        sha256: of the file behind it.
    """

    embed: Callable[[], Prompt]
    layout: PromptLayout
    sha256: str = ""


@dataclass
class Search:
    """Runs one search over one or several samples (MMInference, algorithm 4).

    Two passes over the samples, each one dense prefill of every sample whose attention layers are
    overheard in passing. The first tries every candidate in every region, the second the patterns
    that were put together from the best of them. Errors add up over samples and tokens.

    Attributes:
        samples: that patterns are searched on; the shortest decides the candidates' sizes.
        sidecar: file in which finished layers are kept until the end.
        on_step: told of every layer.
    """

    adapter: Adapter
    samples: Sequence[SearchSample]
    settings: SearchSettings = field(default_factory=SearchSettings)
    sidecar: Path | None = None
    on_step: OnStep | None = None

    def __post_init__(self) -> None:
        if not self.samples:
            raise SoonerError("no samples to search patterns on; give at least one")
        shortest = min(self.samples, key=lambda sample: len(sample.layout.where()))
        tokens = len(shortest.layout.where())
        self.space = Space(tokens, any(whole(sample.layout).period for sample in self.samples))
        self.candidates = self.space.patterns
        budget = self.settings.budget
        self.budget = self.space.target(shortest.layout) if budget is None else budget
        self.prices = torch.ones(len(self.candidates), dtype=torch.double)
        self.notes = Sidecar(self.sidecar, self._key())
        self.done, self.windowed = 0, windowed_layers(self.adapter)

    def run(self) -> PatternTable:
        """Returns the table; takes two prefills of each sample, the candidates' scores, and for
        break-even a third prefill of the longest sample."""
        queries, last = self.settings.queries, self.settings.last

        def survey_all(layer: int, states: States, layout: PromptLayout) -> list[Survey]:
            return [survey(states, layout, self.candidates, queries, last)]

        surveys = self._measure("survey", survey_all, [1] * self.adapter.layers)
        options = [
            shortlist(
                reduce(add, (survey for (survey,) in entry)), self.candidates, self.prices,
                self._target(), self.settings,
            ) if entry else [[Dense()] * heads]
            for entry, (heads, *_) in zip(surveys, head_shapes(self.adapter), strict=True)
        ]  # fmt: skip

        def try_all(layer: int, states: States, layout: PromptLayout) -> list[Survey]:
            patterns = options[layer]
            return [trial(states, layout, each, queries, CHECK_TURN, last) for each in patterns]

        trials = self._measure("trial", try_all, list(map(len, options)))
        layers = [
            self._layer(types, [reduce(add, each) for each in zip(*entry, strict=True)])
            if entry
            else tuple(map(HeadEntry, types[0]))
            for types, entry in zip(options, trials, strict=True)
        ]
        return self._table(layers)

    def _measure(
        self, stage: str, measure: Measure, counts: Sequence[int]
    ) -> list[list[list[Survey]]]:
        """Runs a dense prefill of every sample.

        Args:
            counts: how many surveys each layer has.

        Returns:
            What was measured, or kept of an earlier search, of each layer and sample; nothing of
            layers that see a window.
        """
        results: list[list[list[Survey]]] = [[] for _ in range(self.adapter.layers)]
        for number, sample in enumerate(self.samples):

            def look(layer: int, states: States, number: int = number) -> None:
                if layer in self.windowed:
                    return
                layout = self.samples[number].layout.to(states.queries.device)
                if self.is_measured and (stage, number, self.done) == ("survey", 0, 0):
                    self.prices = prices(self.candidates, states, layout)
                name = f"{stage}-{number}-{layer}"
                result = self.notes.entries.get(name)
                if result is None or len(result) != counts[layer]:
                    result = measure(layer, states, layout)
                    self.notes.keep(name, result)
                results[layer].append(result)
                self._step(stage)

            capture(self.adapter, sample.embed(), look)
        return results

    @property
    def is_measured(self) -> bool:
        """Whether candidates cost what they take on the device, and not what they compute."""
        if self.settings.cost == "auto":
            return self.adapter.device.type == "cuda"
        return self.settings.cost == "measured"

    def _target(self) -> float:
        """Returns the budget; the paper's is priced as the A-shape that it is taken from."""
        if self.settings.budget is not None or not self.is_measured:
            return self.budget
        return self.budget * float(self.prices[self.candidates.index(self.space.target_shape)])

    def _step(self, stage: str) -> None:
        total = (self.adapter.layers - len(self.windowed)) * len(self.samples)
        self.done = self.done % total + 1
        if self.on_step is not None:
            self.on_step(stage, self.done, total)

    def _layer(
        self, types: Sequence[Sequence[HeadPattern]], trials: Sequence[Survey]
    ) -> tuple[HeadEntry, ...]:
        patterns, figures = decide(types, trials, self.settings)
        return tuple(
            HeadEntry(pattern, *(round(value, 6) for value in row))
            for pattern, row in zip(patterns, figures.T.tolist(), strict=True)
        )

    def _table(self, layers: list[tuple[HeadEntry, ...]]) -> PatternTable:
        below, how = 0, "not measured"
        if self.settings.break_even:
            below, how = self._break_even(layers)
        periods = [whole(sample.layout).period for sample in self.samples]
        return PatternTable(
            model=model_name(self.adapter),
            fingerprint=fingerprint(self.adapter),
            layers=tuple(layers),
            dense_below=below,
            frame_tokens=next((period for period in periods if period), None),
            samples=tuple(sample.sha256 for sample in self.samples),
            about={**self._about(), "break_even": how},
        )

    def _break_even(self, layers: Sequence[Sequence[HeadEntry]]) -> tuple[int, str]:
        """Returns the break-even of a typical layer on the longest sample; 0 if none is sparse."""
        if (number := typical(layers)) is None:
            return 0, "no head is sparse"
        sample = max(self.samples, key=lambda sample: len(sample.layout))
        captured: dict[int, States] = {}

        def look(layer: int, states: States) -> None:
            if layer == number:
                captured[layer] = states

        capture(self.adapter, sample.embed(), look)
        patterns = [head.pattern for head in layers[number]]
        layout = sample.layout.to(captured[number].queries.device)
        return break_even(patterns, captured[number], layout)

    def _about(self) -> dict[str, Any]:
        device = self.adapter.device
        is_cuda = device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(device) if is_cuda else platform.machine(),
            "versions": {name: installed(name) for name in ("sooner", "torch")},
            "search": {**asdict(self.settings), "budget": round(self.budget, 6)},
            "cost": "measured" if self.is_measured else "FLOPs",
            "candidates": len(self.candidates),
            "scale": round(self.space.scale, 4),
            "tokens": [len(sample.layout.where()) for sample in self.samples],
        }

    def _key(self) -> str:
        """Returns what tells this search from another."""
        samples = [(sample.sha256, len(sample.layout)) for sample in self.samples]
        model = (model_name(self.adapter), fingerprint(self.adapter))
        candidates = [str(pattern) for pattern in self.candidates]
        return repr((installed("sooner"), model, samples, self.settings, candidates))
