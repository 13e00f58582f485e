"""`sooner bench caption`: video captioning, every arm on the same clips in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sooner.engine.stats.run import APPROXIMATE, EXACT
from sooner.generation import Generation, generate
from sooner.methods import Method
from sooner.models import adapt
from sooner.parity import compare, reference_run
from sooner.provenance import provenance
from sooner.registry import choices
from sooner.sparse.pruning import Pruner
from sooner.tasks.clip import Clip, prepare
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.registry import build_method
from sooner.tasks.settings import CaptionSettings
from sooner.tasks.threads import plan_threads

from . import hf_arms
from .caption_settings import BATCHED, FIXED, HF, LOSSY, SIMULATED, TRAINED, BenchSettings
from .clips import Clips, from_dataset, rendered
from .fidelity import acceptance_ratio
from .memory import memory_figures
from .prediction import predicted_speedup
from .render import Page, Table, cell
from .run import Arm, ArmSamples, TimedRun, measure, row


def run(settings: BenchSettings, progress: Callable[[str], None] = print) -> dict[str, Any]:
    """Measure and return the result object: `arms`, `batch`, `memory` and `provenance`."""
    pair = load_pair(settings.model, settings.draft, device=settings.device, dtype=settings.dtype)
    threads = plan_threads(pair, settings.threads).apply()
    with tempfile.TemporaryDirectory() as folder:
        clips = find_clips(Path(folder), settings)
        bench = CaptionBench(pair, clips, settings)
        measured = bench.measure(progress)
        result: dict[str, Any] = {
            "bench": "caption",
            "model": pair.target.name if settings.model else f"miniature:{pair.miniature}",
            "dataset": clips.dataset,
            "samples": list(clips.ids),
            "clips": len(clips.files),
            "repeats": settings.repeats,
            "arms": bench.rows(measured),
        }
        if settings.batch and pair.draft is not None:
            progress(f"batch of {settings.batch}")
            arms = [arm for arm in result["arms"] if arm["method"] in BATCHED]
            result["batch"] = batch_figures(bench, settings.batch, arms)
        if settings.memory and pair.draft is not None:
            progress("peak memory")
            result["memory"] = memory_figures(clips.files[0], settings)
    dtype = str(pair.target.model.dtype).removeprefix("torch.")
    device = str(pair.target.model.device)
    result["provenance"] = provenance(device, dtype, settings.seed, threads.draft)
    return result


def find_clips(folder: Path, settings: BenchSettings) -> Clips:
    """The clips that `settings` name; rendered ones and unpacked ones go into `folder`."""
    if settings.files:
        return Clips(settings.files)
    if settings.dataset is not None:
        return from_dataset(
            settings.dataset, settings.clips, settings.seed, settings.min_seconds, folder
        )
    return rendered(folder, settings.clips, settings.seed)


Reference = tuple[list[int], list[Tensor]]

"""Tokens of HF's own decoding, and the scores of each."""


class CaptionBench:
    """The arms over one pair of models and some clips."""

    def __init__(self, pair: ModelPair, clips: Clips, settings: BenchSettings) -> None:
        self.pair = pair
        self.files = clips.files
        self.prompt = clips.prompt
        self.settings = settings
        self.model = pair.target.model
        self.assistant: Any = None
        self._block_drafter: Any = None
        if pair.draft is not None and "hf-assisted" in settings.arms:
            size = self.model.config.get_text_config().vocab_size
            self.assistant = hf_arms.with_vocabulary(pair.draft.model, size)
        self._reference: tuple[int, Reference] | None = None
        self._trained: dict[str, Method] = {}

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        if name in HF:
            return Arm(name, lambda index: self.run_hf(name, index))
        mode = APPROXIMATE if name in LOSSY else EXACT
        return Arm(name, lambda index: self.run_ours(name, index), mode)

    def measure(self, progress: Callable[[str], None]) -> list[ArmSamples]:
        """Time every arm, then hold its tokens against HF's incremental decoding."""
        arms = [self.arm(name) for name in self.settings.arms if self._possible(name)]
        measured = measure(arms, len(self.files), self.settings.repeats, progress)
        for index in range(len(self.files)):
            tokens, scores = self.reference(index)
            for arm in measured:
                arm.parity += [
                    compare(tokens, sample.tokens[0], scores) for sample in arm.samples[index]
                ]
        return measured

    def reference(self, index: int) -> Reference:
        """HF's own incremental decoding of clip `index`; that of the last one asked for is kept."""
        if self._reference is None or self._reference[0] != index:
            clip = self.clip("plain", index)
            tokens, scores = reference_run(
                self.model, clip.inputs, max_new_tokens=clip.max_new_tokens
            )
            self._reference = index, (tokens[0], scores[0])
        return self._reference[1]

    def rows(self, measured: list[ArmSamples]) -> list[dict[str, Any]]:
        """One object of figures for each arm."""
        plain = next(arm for arm in measured if arm.arm.name == "plain")
        rows = [row(arm, plain) for arm in measured]
        for arm, figures in zip(measured, rows, strict=True):
            if arm.arm.name in LOSSY:
                figures["acceptance_ratio"] = self._acceptance_ratio(arm)
                figures |= self.pruner_figures(arm.arm.name)
            if arm.arm.name in SIMULATED and not arm.is_red:
                self._compare_with_simulator(arm, plain, figures)
        return rows

    def _compare_with_simulator(self, arm: ArmSamples, plain: ArmSamples, figures: dict) -> None:
        """Put the simulator's speed-up, and the share of it that was measured, into `figures`."""
        num_draft_tokens = self.settings.num_draft_tokens if arm.arm.name == "speculative" else None
        predicted = predicted_speedup(arm.stats, plain.stats, num_draft_tokens)
        if predicted is not None:
            figures["simulated_speedup"] = predicted
            figures["share_of_simulation"] = figures["decode_speedup"] / predicted

    def _acceptance_ratio(self, arm: ArmSamples) -> float:
        """Share of a pruned target's tokens that the full one would say too (table 2's A)."""
        pruner = self.pruner(arm.arm.name)
        ratios = []
        for index, runs in enumerate(arm.samples):
            clip = self.clip("plain", index)
            stepwise = getattr(pruner, "decode_ratio", 0) > 0
            ratios.append(
                acceptance_ratio(
                    self.model, clip.inputs, runs[0].tokens[0], pruner, stepwise=stepwise
                )
            )
        return sum(each.greedy for each in ratios) / len(ratios)

    def _possible(self, name: str) -> bool:
        if name in HF:
            return name != "hf-assisted" or self.assistant is not None
        if name in LOSSY or name in TRAINED:
            return True
        return self.pair.draft is not None or not choices()[_method(name)].needs_draft

    def clip(self, name: str, index: int) -> Clip:
        """Clip `index`, from its file, as the arm's models take it."""
        return prepare(self.files[index], self.pair, self.caption_settings(name))

    def caption_settings(self, name: str) -> CaptionSettings:
        """Settings of our arm `name`, or of plain decoding for HF's."""
        settings = CaptionSettings(
            method="plain" if name in (*HF, *LOSSY, *TRAINED) else _method(name),
            max_new_tokens=self.settings.max_new_tokens,
            prune=0.0 if name.endswith("-unpruned") else self.settings.prune,
            frames=self.settings.frames,
            prompt=self.prompt,
        )
        if name in FIXED:
            return replace(settings, num_draft_tokens=self.settings.num_draft_tokens)
        return settings

    def run_ours(self, name: str, index: int) -> TimedRun:
        """From the file to the text, by our engine."""
        start = time.perf_counter()
        clip = self.clip(name, index)
        made = generate(
            self.model,
            clip.inputs,
            self.method(name, clip),
            prefill=self.pruner(name),
            max_new_tokens=clip.max_new_tokens,
            do_sample=False,
        )
        self.pair.target.tokenizer.decode(made.tokens[0])
        seconds = time.perf_counter() - start
        stats = made.stats
        return TimedRun(made.tokens, stats.decode_seconds, seconds, stats.decode_tokens, stats)

    def run_hf(self, name: str, index: int) -> TimedRun:
        """From the file to the text, by HF's `generate`."""
        start = time.perf_counter()
        clip = self.clip(name, index)
        tokens, decode_seconds, decode_tokens = hf_arms.run(
            self.model, clip.inputs, clip.max_new_tokens, **self._hf_options(name)
        )
        self.pair.target.tokenizer.decode(tokens)
        seconds = time.perf_counter() - start
        return TimedRun([tokens], decode_seconds, seconds, decode_tokens)

    def _hf_options(self, name: str) -> dict[str, Any]:
        if name == "hf-assisted":
            return {"assistant_model": self.assistant}
        if name == "hf-prompt-lookup":
            return {"prompt_lookup_num_tokens": 10}
        if name == "hf-dflash":
            if self._block_drafter is None:
                drafter = TRAINED["dflash"].method().drafter  # type: ignore[attr-defined]
                self._block_drafter = hf_arms.block_assistant(drafter, self.model)
            return {"assistant_model": self._block_drafter, "speculation_type": "dflash"}
        return {}

    def method(self, name: str, clip: Clip) -> Method:
        """The method of our arm `name`, for the draft's inputs of a clip."""
        if name in TRAINED:  # of a fixed size, so that nothing is learnt from run to run
            if name not in self._trained:
                self._trained[name] = TRAINED[name].method()
            return self._trained[name]
        alone = replace(self.pair)  # with nothing learnt: no run may depend on those before it
        return build_method(self.caption_settings(name), alone, clip.draft_inputs)

    def pruner(self, name: str) -> Pruner | None:
        """What prunes the target in an arm of `LOSSY`, at the retention that all share.

        Raises:
            SoonerError: it can't keep so few or so many on these layers.
        """
        if name not in LOSSY:
            return None
        return LOSSY[name]().for_retention(self.settings.retention, adapt(self.model).layers)

    def pruner_figures(self, name: str) -> dict[str, Any]:
        """What the pruner of an arm of `LOSSY` keeps: `retention`, the mean share of the visual
        tokens that a generated token attends to, and `prefill_retention`; `pruner` in words."""
        pruner, layers = self.pruner(name), adapt(self.model).layers
        assert pruner is not None
        return {
            "retention": pruner.decode_retention(layers),
            "prefill_retention": pruner.retention(layers),
            "pruner": str(pruner),
        }


def _method(arm: str) -> str:
    """The method behind an arm's name."""
    return arm.removesuffix("-auto").removesuffix("-unpruned")


Figures = dict[str, Any]

PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids")

"""Inputs with one value for each prompt token, which have to be padded to one width."""


def batch_figures(bench: CaptionBench, rows: int, arms: Sequence[Figures]) -> Figures:
    """Decode `rows` clips together, arm by arm in turns; clips repeat when there are fewer.

    Args:
        bench: whose clips, models and settings are taken.
        rows: of the batch.
        arms: the figures of the arms over one row, plain decoding's first.

    Returns:
        `rows`, and in `arms` for each: `method`, `tokens_per_second` of all rows (median of the
        repetitions), `over_plain`, which is that over plain decoding's of the same batch;
        `tokens_per_second_1` of one row, `over_one_row`, and `one_row_over_plain`;
        `mean_acceptance_length`; `parity`, of every row with HF's decoding of that row alone. HF's
        assisted generation takes one row only.
    """
    clips = [bench.clip("plain", index) for index in range(len(bench.files))]
    order = [index % len(clips) for index in range(rows)]
    limit = min(clip.max_new_tokens for clip in clips)
    wholes = {arm["method"]: _whole(bench, arm["method"], order) for arm in arms}
    made = {name: _decode(bench, name, whole, limit) for name, whole in wholes.items()}  # warm-up
    speeds: dict[str, list[float]] = {name: [] for name in wholes}
    for _ in range(bench.settings.repeats):
        for name, whole in wholes.items():
            made[name] = _decode(bench, name, whole, limit)
            speeds[name].append(made[name].stats.tokens_per_second)
    parity = _verdicts(
        bench, order, {name: generation.tokens for name, generation in made.items()}, limit
    )
    plain, alone = median(speeds["plain"]), arms[0]["tokens_per_second"]
    rows_by_arm = []
    for arm in arms:
        name = arm["method"]
        speed, single = median(speeds[name]), arm.get("tokens_per_second")
        rows_by_arm.append(
            {
                "method": name,
                "tokens_per_second": speed,
                "over_plain": speed / plain,
                "tokens_per_second_1": single,
                "over_one_row": speed / single if single else None,
                "one_row_over_plain": single / alone if single else None,
                "mean_acceptance_length": made[name].stats.mean_acceptance_length,
                "parity": parity[name],
            }
        )
    return {"rows": rows, "arms": rows_by_arm}


def _whole(bench: CaptionBench, name: str, order: Sequence[int]) -> Clip:
    """All rows as one clip, with the inputs that an arm's draft takes."""
    clips = [bench.clip(name, index) for index in sorted(set(order))]
    return _together([clips[index] for index in order])


def _verdicts(
    bench: CaptionBench, order: Sequence[int], made: Mapping[str, list[list[int]]], limit: int
) -> dict[str, list[str]]:
    """Parity of each row of each arm with HF's decoding of that row alone, clip by clip."""
    verdicts: dict[str, list[str]] = {name: [""] * len(order) for name in made}
    for clip in sorted(set(order)):
        expected, scores = bench.reference(clip)
        for place in (place for place, index in enumerate(order) if index == clip):
            for name, tokens in made.items():
                parity = compare(expected[:limit], tokens[place], scores[:limit])
                verdicts[name][place] = parity.verdict
    return verdicts


def _decode(bench: CaptionBench, name: str, clip: Clip, limit: int) -> Generation:
    method = bench.method(name, clip)
    return generate(bench.model, clip.inputs, method, max_new_tokens=limit, do_sample=False)


def _together(clips: list[Clip]) -> Clip:
    """One clip whose inputs hold all rows."""
    drafts = [clip.draft_inputs for clip in clips if clip.draft_inputs is not None]
    return Clip(
        frames=clips[0].frames,
        prompt=clips[0].prompt,
        inputs=stack([clip.inputs for clip in clips]),
        draft_inputs=stack(drafts) if drafts else None,
        max_new_tokens=min(clip.max_new_tokens for clip in clips),
    )


def stack(inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """One batch of several single-row inputs, shorter prompts padded on the left with zeros."""
    width = max(row["input_ids"].shape[1] for row in inputs)
    padded = [_widen(row, width) for row in inputs]
    return {
        name: torch.cat([row[name] for row in padded])
        for name, value in padded[0].items()
        if isinstance(value, Tensor)
    }


def _widen(inputs: Mapping[str, Any], width: int) -> dict[str, Any]:
    ids = inputs["input_ids"]
    full = {"attention_mask": torch.ones_like(ids), **inputs}
    missing = width - ids.shape[1]
    return {
        name: pad(value, (missing, 0)) if name in PER_TOKEN else value
        for name, value in full.items()
    }


def _notes(result: Figures) -> list[str]:
    """Say what was measured beside the arms: a batch, and peak memory."""
    lines = [
        "",
        "*decode* and *e2e* are speed-ups over `plain`; *theory* is the speed-up that the arm's "
        "own acceptance and step times allow (`sooner_lab.bench.run.theory_speedup`). 𝒜 is the "
        "share of an approximate arm's tokens that the full target accepts "
        "(`sooner_lab.bench.fidelity`).",
    ]
    if batch := result.get("batch"):
        arms = [
            f"{arm['method']} {arm['tokens_per_second']:.0f} tokens/s, {arm['over_plain']:.2f}× "
            f"plain (one row: {cell(arm['one_row_over_plain'], '{:.2f}×')}), parity "
            f"{', '.join(sorted(set(arm['parity'])))}"
            for arm in batch["arms"]
        ]
        over = f"Batch of {batch['rows']}, over plain decoding of the same batch"
        lines += ["", f"{over}: {'; '.join(arms)}."]
    if memory := result.get("memory"):
        mib = {key: value / 2**20 for key, value in memory.items() if key.endswith("_bytes")}
        within = "within" if memory["within_budget"] else "above"
        lines += [
            "",
            f"Peak memory: plain {mib['plain_bytes']:.0f} MiB, speculative "
            f"{mib['speculative_bytes']:.0f} MiB, {within} the budget of "
            f"{mib['budget_bytes']:.0f} MiB (plain + 5 % + {mib['draft_bytes']:.1f} MiB of draft "
            "weights and cache).",
        ]
    return lines


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
    (Table(lambda result: f"Arms on {result['clips']} clips", "arms", ARM_COLUMNS),),
    outro=_notes,
)
