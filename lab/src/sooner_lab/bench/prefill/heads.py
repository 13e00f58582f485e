"""What patterns keep of each head's attention in a model of text, and of its look at a needle."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from sooner.engine.interface import Prompt
from sooner.models import Adapter
from sooner.sparse.attention import States
from sooner.sparse.attention.run import jobs
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape, VerticalSlash
from sooner.sparse.search.run import capture
from sooner.sparse.search.score import SampledQueries, survey, trial
from sooner.sparse.search.space import Space
from sooner.sparse.table import PatternTable

from ..run import Data
from .arms import pattern
from .model import trained_layers
from .settings import PrefillSettings
from .text import TextSample, TextTask

QUERIES, ENOUGH = 128, 0.95
"""Queries on which recall is measured; recall that a head should have."""
ARMS = ("a-shape", "vertical-slash", "ours")


def head_parts(
    settings: PrefillSettings, adapter: Adapter, tokenizer: Any, ours: PatternTable
) -> Data:
    """Return `candidates`, a row for each of the search that text has, as the pattern of all heads,
    and `rows`, one for each trained layer: recall, the last query's weight on the needle, and how
    much of it is kept. They are of dense attention over one prompt of the greatest length, on which
    nothing was searched."""
    tokens, trained = max(settings.lengths), trained_layers(adapter)
    sample = TextTask(tokenizer).sample(tokens, 0.5, settings.seed)
    layout = PromptLayout.text(tokens).to(adapter.device)
    known = [each for each in Space(tokens).patterns if isinstance(each, AShape | VerticalSlash)]
    figures: list[Tensor] = []
    kept: list[list[float]] = []
    rows: list[Data] = []

    def look(layer: int, states: States) -> None:
        if layer not in trained:
            return
        figures.append(survey(states, layout, known, QUERIES).figures[1:])
        keys = states.keys.repeat_interleave(states.group, 0)  # [heads, tokens, head_dim]
        scores = (keys @ states.queries[:, -1, :, None])[..., 0].float() * states.scale
        weights = scores.softmax(1)[:, sample.needle]  # [heads, needle]
        row = {"needle": weights.sum(1), "pairs95": _few(states, layout)}
        for name in ARMS:
            each = [head.pattern for head in ours.layers[layer]]
            if name != "ours":
                each = [pattern(name, tokens, settings.budget)] * len(each)
            row[f"recall {name}"] = trial(states, layout, each, QUERIES).figures[1]
            row[f"kept {name}"] = torch.ones_like(row["needle"])
            for job in jobs(states, layout, each):
                if job.index is not None:
                    seen = job.index.seen_by_all(job.plane, slice(-1, None))[:, 0, sample.needle]
                    part = weights[job.heads]  # [picked, needle]
                    row[f"kept {name}"][job.heads] = (part * seen).sum(1) / part.sum(1)
        kept.append([float((row["needle"] * row[f"kept {name}"]).sum()) for name in ARMS])
        lists = {key: [round(x, 4) for x in value.tolist()] for key, value in row.items()}
        rows.append({"layer": layer, "pattern": list(map(str, each)), **lists})

    capture(adapter, embed(adapter, sample), look)
    recall, share = torch.stack(figures).unbind(1)  # [layers, candidates, heads]
    means = (x.mean((0, 2)).tolist() for x in (share, recall, (recall >= ENOUGH).double()))
    keys = ("method", "pattern", "flops_share", "recall", "good_heads")
    columns = ([each.name for each in known], map(str, known), *means)
    table = [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
    total, sums = sum(sum(row["needle"]) for row in rows), torch.tensor(kept).sum(0)
    return {
        "tokens": tokens, "pairs95": fmean(x for row in rows for x in row["pairs95"]),
        "kept": dict(zip(ARMS, (sums / total).tolist(), strict=True)), "rows": rows,
        "candidates": sorted(table, key=lambda row: row["flops_share"]),
    }  # fmt: skip


def embed(adapter: Adapter, sample: TextSample) -> Prompt:
    """Return a prompt as the model's decoder takes it, one row."""
    with torch.inference_mode():
        return adapter.embed_prompt(sample.inputs(model=adapter.model))


def _few(states: States, layout: PromptLayout) -> Tensor:
    """Return the share of the pairs that hold `ENOUGH` of each query's weights, `[heads]`."""
    reading, counts = SampledQueries.of(states, layout, QUERIES), []
    for picked in reading.chunks():
        weights = reading.attention(picked).weights  # [picked, queries, tokens]
        sums = weights.sort(-1, descending=True).values.cumsum(-1)
        counts.append(((sums < ENOUGH).sum(-1) + 1).sum(1))
    return torch.cat(counts) / (reading.slots + 1).sum()
