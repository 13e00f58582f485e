"""The prefill of a whole model by prompt length: latency, and what the next tokens say (figure 10,
and the columns of table 1 that need no benchmark)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from sooner.engine.interface import Prompt
from sooner.engine.runner import ModelRunner
from sooner.models import Adapter
from sooner.sparse.prefill import MMInference
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair

from ..run import Progress, time_in_turns
from .arms import pattern
from .prompts import long_inputs
from .settings import PrefillSettings

Prefill = MMInference | None
"""A context over the model; `None` is dense."""


def model(
    settings: PrefillSettings,
    pair: ModelPair,
    adapter: Adapter,
    ours: PatternTable | None,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Return a row for each arm and length: `seconds`, `speedup`, `recall` (a mean over trained
    layers), `recall_all` (over all), `flops_share`, `logit_error`, `agreement`. What an arm keeps
    is measured once, in a run that is not timed."""
    rows = []
    for tokens in settings.lengths:
        progress(f"model, {tokens} tokens: embedding")
        inputs = long_inputs(pair.target, tokens, settings.seed, pair.prompt)
        with torch.inference_mode():
            prompt = adapter.embed_prompt(inputs)
            arms = {
                name: _prefill(name, settings, adapter, ours, prompt.width)
                for name in settings.arms
                if name != "planted"
            }
            works = {name: partial(_run, arm, adapter, prompt) for name, arm in arms.items()}
            times = time_in_turns(works, settings.repeats, adapter.device, progress)
            expected = continuation(adapter, prompt, settings.agree)
            dense, _ = _measure(None, adapter, prompt, expected)
            for name, arm in arms.items():
                progress(f"model, {tokens} tokens, what is kept: {name}")
                logits, figures = _measure(arm, adapter, prompt, expected)
                wrong = (logits - dense).norm(dim=1) / dense.norm(dim=1)
                same = logits.argmax(1) == dense.argmax(1)
                rows.append(
                    {
                        "method": name,
                        "tokens": prompt.width,
                        "seconds": median(times[name]),
                        "speedup": median(times["dense"]) / median(times[name]),
                        "logit_error": float(wrong.mean()),
                        "agreement": float(same.float().mean()),
                        **figures,
                    }
                )
    return rows


def _prefill(
    name: str, settings: PrefillSettings, adapter: Adapter, ours: PatternTable | None, width: int
) -> Prefill:
    if name == "dense":
        return None
    if name == "ours":
        return MMInference(ours)
    made = pattern(name, width, settings.budget)
    return MMInference(PatternTable.uniform(adapter, made))


def _within(prefill: Prefill, adapter: Adapter) -> AbstractContextManager[Any]:
    return nullcontext() if prefill is None else prefill(adapter.model)


def _run(prefill: Prefill, adapter: Adapter, prompt: Prompt) -> None:
    """Prefill once."""
    runner = ModelRunner(adapter, prompt.width + 1)
    with _within(prefill, adapter):
        runner.prefill(prompt)


def _measure(
    prefill: Prefill, adapter: Adapter, prompt: Prompt, tokens: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    """Prefill, note what was kept, and return the logits behind the prompt and each of the tokens,
    `[tokens, vocab]`."""
    runner = ModelRunner(adapter, prompt.width + len(tokens) + 1)
    noting = None if prefill is None else replace(prefill, measure_recall=True)
    with _within(noting, adapter) as report:
        first = runner.prefill(prompt).logits[0]
        later = runner.forward_chain(tokens[None]).logits[0]
    last = report.last if report is not None else None
    notes, trained = list(runner.cache.approximations), trained_layers(adapter)
    sparse = {} if last is None else {layer.layer: layer.recall for layer in last.sparse}
    recalls = [recall for layer, recall in sparse.items() if recall and layer in trained]
    return torch.cat([first, later])[: len(tokens)].float(), {
        "mode": "approximate" if notes else "exact",
        "flops_share": 1.0 if last is None else last.flops_share,
        "recall": fmean(recalls) if recalls else 1.0,
        "recall_all": 1.0 if last is None else last.recall,
        "trained_layers": len(trained),
        "layers": adapter.layers,
        "notes": notes[:4],
    }


def trained_layers(adapter: Adapter) -> list[int]:
    """Return the layers that recall is a mean over: those that add something, unlike silent copies
    (`sooner.models.silent`), whose output projection is zero, and that see the whole prompt."""
    kinds = getattr(adapter.text_config, "layer_types", None) or ["full_attention"] * adapter.layers
    outputs = [getattr(layer.self_attn, "o_proj", None) for layer in adapter.decoder.layers]
    return [
        number
        for number, (output, kind) in enumerate(zip(outputs, kinds, strict=True))
        if kind == "full_attention" and (output is None or bool(output.weight.any()))
    ]


def continuation(adapter: Adapter, prompt: Prompt, count: int) -> Tensor:
    """Return the greedy tokens behind the prompt after a dense prefill, `[count]`."""
    runner = ModelRunner(adapter, prompt.width + count + 1)
    logits, tokens = runner.prefill(prompt).logits, []
    for _ in range(count):
        tokens.append(logits[:, -1].argmax(-1))  # [1]
        logits = runner.forward_chain(tokens[-1][:, None]).logits
        runner.commit([[0]])
    return torch.cat(tokens)
