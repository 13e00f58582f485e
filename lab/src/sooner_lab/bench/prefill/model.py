"""The prefill of a whole model by prompt length: latency, and what the next tokens say (figure 10,
and the columns of table 1 that need no benchmark)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from sooner.engine.interface import Prompt
from sooner.engine.runner import ModelRunner
from sooner.models import Adapter
from sooner.sparse.prefill import MMInference
from sooner.sparse.prefill.report import PrefillReport
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair

from ..run import Progress
from .arms import pattern
from .layer import timed
from .prompts import long_inputs
from .settings import PrefillSettings


@dataclass
class PrefillArm:
    """One way to prefill, and what it gave.

    Attributes:
        prefill: a context over the model; `None` is dense.
        seconds: of each timed run.
        logits: behind the prompt and each token of the dense continuation, `[tokens, vocab]`.
        notes: what the run says of itself.
        report: what the context measured of recall and work, in a run that is not timed.
    """

    name: str
    prefill: MMInference | None
    seconds: list[float] = field(default_factory=list)
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    notes: list[str] = field(default_factory=list)
    report: PrefillReport | None = None


def model(
    settings: PrefillSettings,
    pair: ModelPair,
    adapter: Adapter,
    ours: PatternTable,
    progress: Progress,
) -> list[dict[str, Any]]:
    """A row for each arm and length: `seconds`, `speedup`, `recall`, `flops_share`,
    `logit_error`, `agreement`. What an arm keeps is measured once, in a run of its own."""
    rows = []
    for tokens in settings.lengths:
        progress(f"model, {tokens} tokens: embedding")
        inputs = long_inputs(pair.target, tokens, settings.seed, pair.prompt)
        with torch.inference_mode():
            prompt = adapter.embed_prompt(inputs)
            arms = [
                _arm(name, settings, adapter, ours, prompt.width)
                for name in settings.arms
                if name != "planted"
            ]
            rows += _length(settings, adapter, prompt, arms, progress)
    return rows


def _arm(
    name: str, settings: PrefillSettings, adapter: Adapter, ours: PatternTable, width: int
) -> PrefillArm:
    if name == "dense":
        return PrefillArm(name, None)
    if name == "ours":
        return PrefillArm(name, MMInference(ours))
    table = PatternTable.uniform(adapter, pattern(name, width, settings.budget))
    return PrefillArm(name, MMInference(table))


def _length(
    settings: PrefillSettings,
    adapter: Adapter,
    prompt: Prompt,
    arms: list[PrefillArm],
    progress: Progress,
) -> list[dict[str, Any]]:
    tokens = continuation(adapter, prompt, settings.agree)
    for turn in range(settings.repeats):
        for arm in arms:
            progress(f"model, {prompt.width} tokens, {turn + 1}/{settings.repeats}: {arm.name}")
            _run(arm, adapter, prompt)
    for arm in arms:
        progress(f"model, {prompt.width} tokens, what is kept: {arm.name}")
        _measure(arm, adapter, prompt, tokens)
    dense = next(arm for arm in arms if arm.prefill is None)
    return [_row(arm, dense, prompt) for arm in arms]


def _run(arm: PrefillArm, adapter: Adapter, prompt: Prompt) -> None:
    """One timed prefill."""
    runner = ModelRunner(adapter, prompt.width + 1)
    with nullcontext() if arm.prefill is None else arm.prefill(adapter.model):
        arm.seconds.append(timed(lambda: runner.prefill(prompt), adapter.device))


def _measure(arm: PrefillArm, adapter: Adapter, prompt: Prompt, tokens: Tensor) -> None:
    """One prefill that notes what was kept, and the logits behind it."""
    runner = ModelRunner(adapter, prompt.width + len(tokens) + 1)
    prefill = None if arm.prefill is None else replace(arm.prefill, measure_recall=True)
    with nullcontext() if prefill is None else prefill(adapter.model) as report:
        first = runner.prefill(prompt).logits[0]
        later = runner.forward_chain(tokens[None]).logits[0]
    arm.logits = torch.cat([first, later])[: len(tokens)].float()
    arm.notes = list(runner.cache.approximations)
    arm.report = report.last if report is not None else None


def continuation(adapter: Adapter, prompt: Prompt, count: int) -> Tensor:
    """The greedy tokens behind the prompt after a dense prefill, `[count]`."""
    runner = ModelRunner(adapter, prompt.width + count + 1)
    logits, tokens = runner.prefill(prompt).logits, []
    for _ in range(count):
        tokens.append(logits[:, -1].argmax(-1))  # [1]
        logits = runner.forward_chain(tokens[-1][:, None]).logits
        runner.commit([[0]])
    return torch.cat(tokens)


def _row(arm: PrefillArm, dense: PrefillArm, prompt: Prompt) -> dict[str, Any]:
    seconds, base = median(arm.seconds), median(dense.seconds)
    wrong = (arm.logits - dense.logits).norm(dim=1) / dense.logits.norm(dim=1)
    same = arm.logits.argmax(1) == dense.logits.argmax(1)
    return {
        "method": arm.name,
        "mode": "approximate" if arm.notes else "exact",
        "tokens": prompt.width,
        "seconds": seconds,
        "speedup": base / seconds,
        "flops_share": 1.0 if arm.report is None else arm.report.flops_share,
        "recall": 1.0 if arm.report is None else arm.report.recall,
        "logit_error": float(wrong.mean()),
        "agreement": float(same.float().mean()),
        "notes": arm.notes[:4],
    }
