"""Prompts that begin alike, for engines with pages of a few slots."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

import tiny
from sooner.engine.memory.pages import PagePool

SLOTS = 4
"""Slots of a page."""

GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": None}


def prompt_of(family: str, kind: str, tail: tuple[int, ...], rows: int = 1) -> dict[str, Any]:
    """A prompt whose beginning is the same for every tail."""
    inputs = dict(tiny.inputs(family, kind, rows))
    more = torch.tensor([tail] * rows, dtype=torch.long).view(rows, len(tail))
    for name, filling in (("input_ids", more), ("attention_mask", torch.ones_like(more))):
        inputs[name] = torch.cat([inputs[name], filling], 1)
    if "mm_token_type_ids" in inputs:
        kinds = torch.zeros_like(more)
        inputs["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], kinds], 1)
    return inputs


@cache
def alone(family: str, kind: str, tail: tuple[int, ...], rows: int) -> list[list[int]]:
    """What HF's own loop says to each prompt."""
    inputs = prompt_of(family, kind, tail, rows)
    with torch.inference_mode():
        ids = tiny.model(family).generate(**inputs, max_new_tokens=23, **GREEDY)
    return ids[:, inputs["input_ids"].shape[1] :].tolist()


def may_write(pool: PagePool, page: int) -> bool:
    """Whether one row alone holds a page, and it is not in the prefix cache."""
    return pool.holders(page) == 1 and pool.name_of(page) is None
