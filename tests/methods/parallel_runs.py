"""Runs of parallel decoding on tiny models."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessor

import sooner
import tiny

NEW = 24


def generate(family: str, kind: str, rows: int, **options: Any) -> sooner.Generation:
    method = sooner.ParallelVLM(
        tiny.noisy(family), **{"num_draft_tokens": 6, "min_visual": 0, **options}
    )
    inputs = tiny.inputs(family, kind, rows)
    return sooner.generate(
        tiny.model(family), inputs, method, max_new_tokens=NEW, eos_token_id=None, do_sample=False
    )


class Unpicklable(LogitsProcessor):
    """Changes nothing, and can't be handed to another process."""

    def __init__(self) -> None:
        self.scale = lambda scores: scores * 1.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.scale(scores)
