"""`sooner bench caption`: video captioning, every arm on the same clips in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from sooner.engine.stats.run import APPROXIMATE, EXACT
from sooner.generation import generate
from sooner.methods import Autoregressive, Method
from sooner.methods.sd_tree import STATIC_TREE
from sooner.models import adapt
from sooner.parity import reference_run
from sooner.registry import choices
from sooner.sparse.pruning import Pruner
from sooner.tasks.clip import Clip, prepare
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.registry import build_method, plan_threads
from sooner.tasks.settings import CaptionSettings

from . import hf_arms
from .caption_settings import COMPILED, FIXED, HF, LOSSY, SIMULATED, TRAINED, CaptionBenchSettings
from .clips import Clips, find_clips
from .fidelity import acceptance_ratio
from .prediction import predicted_speedup
from .render import Page, Table
from .retention import PRUNERS, for_retention, retention
from .run import (
    Arm,
    ArmSamples,
    Data,
    Keep,
    Progress,
    Recorder,
    TimedRun,
    judge,
    measure,
    no_warm_up,
    row,
)

SIZES: Mapping[str, Mapping[str, Any]] = {
    "sd-tree": {"branching": STATIC_TREE}, "specvlm": {"branching": STATIC_TREE},
    "sparse-to-dense": {"num_draft_tokens": 9},
}  # fmt: skip
"""Sizes that baselines have in their papers; `"auto"` would choose others."""


def run(
    settings: CaptionBenchSettings, progress: Progress = print, keep: Keep | None = None
) -> Data:
    """Measure and return the result: `arms`, a row each, and `provenance`."""
    with opened(settings, CaptionBench) as bench:
        recorder = bench.recorder("caption", keep)
        return recorder.add(arms=bench.rows(bench.measure(settings.arms, progress)))


@contextmanager
def opened(settings: Any, make: Any, placement: str = "auto", scenes: int = 8) -> Iterator[Any]:
    """Find clips, load models, and hand out the bench that `make` makes of them.

    Args:
        settings: of `ClipSettings`.
        make: a `CaptionBench`.
        placement: where a draft beside the target runs.
        scenes: of a rendered clip.
    """
    with tempfile.TemporaryDirectory() as folder:
        clips = find_clips(Path(folder), settings, scenes)
        pair = load_pair(
            settings.model, settings.draft, device=settings.device, dtype=settings.dtype
        )
        threads = plan_threads(pair, settings.threads, placement).apply()
        yield make(pair, clips, settings, threads.draft)


class CaptionBench:
    """The arms over one pair of models and some clips."""

    def __init__(
        self, pair: ModelPair, clips: Clips, settings: Any, draft_threads: int | None = None
    ) -> None:
        self.pair, self.clips, self.settings = pair, clips, settings
        self.draft_threads, self.model = draft_threads, pair.target.model
        self.frames = settings.frames
        self._reference: tuple[int, tuple[list[int], list[Tensor]]] | None = None
        self._loaded: dict[str, Any] = {}

    def recorder(self, bench: str, keep: Keep | None, goals: Any = None, **about: Any) -> Recorder:
        """Return the recorder of a bench's result over these models and clips."""
        settings, pair, clips = self.settings, self.pair, self.clips
        model = pair.target.name if settings.model else f"miniature:{pair.miniature}"
        recorder = Recorder(
            bench, settings, goals, keep, model=model, dataset=clips.dataset,
            samples=list(clips.ids), clips=len(clips.files), repeats=settings.repeats, **about,
        )  # fmt: skip
        recorder.origin(self.model.device, self.model.dtype, settings.seed, self.draft_threads or 0)
        return recorder

    def arm(self, name: str) -> Arm:
        """Return the arm of that name."""
        if name in HF:
            return Arm(name, lambda index: self.run_hf(name, index))
        mode = APPROXIMATE if name in LOSSY else EXACT
        return Arm(name, lambda index: self.run_ours(name, index), mode)

    def measure(self, names: Any, progress: Progress, unwarmed: Any = ()) -> list[ArmSamples]:
        """Time arms by name, then hold their tokens against HF's incremental decoding."""
        arms = [
            replace(self.arm(name), warm_up=no_warm_up if name in unwarmed else None)
            for name in names
            if self.is_possible(name)
        ]
        measured = measure(arms, len(self.clips.files), self.settings.repeats, progress)
        judge(measured, self.reference)
        return measured

    def reference(self, index: int) -> tuple[list[int], list[Tensor]]:
        """Return the tokens and scores of HF's own incremental decoding of a clip."""
        if self._reference is None or self._reference[0] != index:
            clip = self.clip("plain", index)
            tokens, scores = reference_run(
                self.model, clip.inputs, max_new_tokens=clip.max_new_tokens
            )
            self._reference = index, (tokens[0], scores[0])
        return self._reference[1]

    def rows(self, measured: list[ArmSamples]) -> list[Data]:
        """Return one object of figures for each arm, plain decoding first."""
        return [row(arm, measured[0]) | self.figures(arm, measured[0]) for arm in measured]

    def figures(self, arm: ArmSamples, plain: ArmSamples) -> Data:
        """Return what lossy arms keep, and what the simulator makes of the others' step times."""
        name, figures = arm.arm.name, Data()
        if (pruner := self.pruner(name)) is not None:
            layers = adapt(self.model).layers
            figures = {
                "acceptance_ratio": self.acceptance_ratio(arm),
                "retention": retention(pruner, layers),
                "prefill_retention": retention(pruner, layers),
                "pruner": str(pruner),
            }
        if self.is_simulated(name) and not arm.is_red:
            size = self.settings.num_draft_tokens if name == "speculative" else None
            predicted = predicted_speedup(arm.stats, plain.stats, size)
            if predicted is not None:
                share = arm.decode_speed / plain.decode_speed / predicted
                figures |= {"simulated_speedup": predicted, "share_of_simulation": share}
        return figures

    def is_simulated(self, name: str) -> bool:
        """Return whether the simulator models an arm."""
        return name in SIMULATED

    def acceptance_ratio(self, arm: ArmSamples) -> float:
        """Return the share of an arm's tokens that the full target would say too (table 2's A)."""
        ratios = [
            acceptance_ratio(self.model, self.clip("plain", index).inputs, runs[0].tokens[0])
            for index, runs in enumerate(arm.samples)
        ]
        return sum(ratios) / len(ratios)

    def is_possible(self, name: str) -> bool:
        """Return whether these models have what an arm needs."""
        if name in HF:
            return name != "hf-assisted" or self.pair.draft is not None
        return self.pair.draft is not None or not choices()[self.base(name)].needs_draft

    def base(self, name: str) -> str:
        """Return the method whose settings and inputs an arm has."""
        if name in (*HF, *LOSSY, *TRAINED):
            return "plain"
        return name.removesuffix("-auto").removesuffix("-unpruned")

    def clip(self, name: str, index: int) -> Clip:
        """Return clip `index`, from its file, as the arm's models take it."""
        return prepare(self.clips.files[index], self.pair, self.caption_settings(name))

    def caption_settings(self, name: str) -> CaptionSettings:
        """Return the settings of our arm `name`, or of plain decoding for HF's."""
        settings = CaptionSettings(
            method=self.base(name),
            max_new_tokens=self.settings.max_new_tokens,
            prune=0.0 if name.endswith("-unpruned") else self.settings.prune,
            frames=self.frames,
            prompt=self.clips.prompt,
        )
        if name in FIXED:
            return replace(settings, num_draft_tokens=self.settings.num_draft_tokens)
        return settings

    def run_ours(self, name: str, index: int) -> TimedRun:
        """Caption a clip from the file to the text, by our engine."""
        start = time.perf_counter()
        clip = self.clip(name, index)
        method = self.method(name, clip)
        arrivals: list[float] = []
        begin = time.perf_counter()
        made = generate(
            self.model,
            clip.inputs,
            method,
            prefill=self.pruner(name),
            compile=name == COMPILED,
            seed=self.settings.seed + index,
            on_tokens=lambda row, tokens, drafted: arrivals.append(time.perf_counter()),
            max_new_tokens=clip.max_new_tokens,
            do_sample=False,
        )
        self.pair.target.tokenizer.decode(made.tokens[0])
        seconds, stats = time.perf_counter() - start, made.stats
        return TimedRun(
            made.tokens, stats.decode_seconds, seconds, stats.decode_tokens, stats,
            arrivals[0] - begin,
        )  # fmt: skip

    def run_hf(self, name: str, index: int) -> TimedRun:
        """Caption a clip from the file to the text, by HF's `generate`."""
        start = time.perf_counter()
        clip = self.clip(name, index)
        tokens, decode_seconds, decode_tokens = hf_arms.run(
            self.model, clip.inputs, clip.max_new_tokens, **self._hf_options(name)
        )
        self.pair.target.tokenizer.decode(tokens)
        seconds = time.perf_counter() - start
        return TimedRun([tokens], decode_seconds, seconds, decode_tokens)

    def _hf_options(self, name: str) -> dict[str, Any]:
        if name == "hf-prompt-lookup":
            return {"prompt_lookup_num_tokens": 10}
        if name == "hf-assisted":
            size = self.model.config.get_text_config().vocab_size
            draft: Any = self.pair.draft
            return {
                "assistant_model": self._once(
                    name, lambda: hf_arms.with_vocabulary(draft.model, size)
                )
            }
        if name == "hf-dflash":
            made = self._once(
                name,
                lambda: hf_arms.block_assistant(TRAINED["dflash"].method().drafter, self.model),
            )
            return {"assistant_model": made, "speculation_type": "dflash"}
        return {}

    def method(self, name: str, clip: Clip) -> Method:
        """Return the method of our arm `name`, for the draft's inputs of a clip."""
        if name in TRAINED:  # of a fixed size, so that nothing is learnt from run to run
            method: Method = self._once(name, TRAINED[name].method)
            return method
        if name == COMPILED:
            return Autoregressive()
        alone = replace(self.pair)  # with nothing learnt: no run may depend on those before it
        made = build_method(self.caption_settings(name), alone, clip.draft_inputs)
        return replace(made, **SIZES.get(name, {}))

    def pruner(self, name: str) -> Pruner | None:
        """Return what prunes the target in an arm of `LOSSY`, at the retention that all share.

        Raises:
            SoonerError: it can't keep so few or so many on these layers.
        """
        if name not in LOSSY:
            return None
        kind: type[Pruner] = PRUNERS[name]
        return for_retention(kind(), self.settings.retention, adapt(self.model).layers)

    def _once(self, name: str, make: Any) -> Any:
        if name not in self._loaded:
            self._loaded[name] = make()
        return self._loaded[name]


ARM_COLUMNS: tuple[tuple[Any, str, str], ...] = (
    ("method", "method", "{}"), ("mode", "mode", "{}"), ("tokens", "tokens", "{}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"), ("decode_speedup", "decode", "{:.2f}×"),
    ("e2e_speedup", "e2e", "{:.2f}×"), ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("theory_speedup", "theory", "{:.2f}×"), ("share_of_theory", "of theory", "{:.0%}"),
    ("overhead_share", "outside forwards", "{:.1%}"), ("parity", "parity", "{}"),
    ("acceptance_ratio", "𝒜", "{:.1%}"), ("retention", "retention", "{:.0%}"),
)  # fmt: skip
PAGE = Page(
    lambda result: f"Caption: {result['model']}",
    (
        Table(
            lambda result: f"Arms on {result['clips']} clips",
            "arms",
            ARM_COLUMNS,
            "*decode* and *e2e* are speed-ups over `plain`; *theory* is the speed-up that the "
            "arm's own acceptance and step times allow (`sooner_lab.bench.run.theory_speedup`). 𝒜 "
            "is the share of an approximate arm's tokens that the full target accepts "
            "(`sooner_lab.bench.fidelity`).",
        ),
    ),
    retired={"9362df8": ("batch.arms", "memory")},
)
