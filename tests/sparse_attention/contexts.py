"""Sparse prefills of tiny models, and prompts that are longer than a block."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import sooner
import tiny
from sooner import MMInference
from sooner.models import adapt
from sooner.sparse.attention import States
from sooner.sparse.index import build
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import causal
from sooner.sparse.patterns import (
    AShape,
    Boundary,
    Dense,
    Grid,
    HeadPattern,
    QBoundary,
)
from sooner.sparse.plane import plane_of, whole
from sooner.sparse.probe import LAST, probe
from sooner.sparse.table import HeadEntry, PatternTable

WORDS = 90  # behind the pixels, so that prompts are longer than a block
STATIC: tuple[HeadPattern, ...] = (
    AShape(4, 10),
    Grid(7, 3),
    Dense(),
    QBoundary({"text": Grid(16, 0, hline=False, vline=False, local=16), "image": AShape(2, 8)}),
)
FAMILIES = ("llama", "llava_onevision", "qwen2_5_vl", "qwen3_vl")


def prompt_of(family: str, rows: int = 1, kind: str = "mixed") -> dict[str, Any]:
    """Prompts of `tiny`, with more words at their end."""
    kind = "text" if family in tiny.TEXT_FAMILIES else kind
    inputs = dict(tiny.inputs(family, kind, rows))
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(0, 80, (rows, WORDS), generator=generator)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], words], 1)
    inputs["attention_mask"] = nn.functional.pad(inputs["attention_mask"], (0, WORDS), value=1)
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"] = nn.functional.pad(inputs["mm_token_type_ids"], (0, WORDS))
    return inputs


def sparse(family: str, *heads: HeadPattern, **options: Any) -> MMInference:
    """A context whose layers all have these heads."""
    plain = PatternTable.uniform(adapt(tiny.model(family)), Dense())
    layer = tuple(HeadEntry(pattern) for pattern in heads or STATIC)
    layers = (layer,) * len(plain.layers)
    table = PatternTable(plain.model, plain.fingerprint, layers)
    return MMInference(table, **{"backend": "reference", **options})


def decode(family: str, prefill: Any, method: Any = None, **options: Any) -> Any:
    inputs = options.pop("inputs", None) or prompt_of(family, options.pop("rows", 1))
    options = {"max_new_tokens": 7, "eos_token_id": None, **options}
    return sooner.generate(tiny.model(family), inputs, method, prefill=prefill, **options)


def states(
    tokens: int,
    heads: int,
    kv_heads: int,
    width: int = 8,
    dtype: torch.dtype = torch.float32,
    scale: float = 0.7,
) -> States:
    """Random states of a row."""
    generator = torch.Generator().manual_seed(tokens + 17 * heads)
    query, key, value = (
        torch.randn(count, tokens, width, generator=generator).to(dtype)
        for count in (heads, kv_heads, kv_heads)
    )
    return States(query, key, value, scale)


def mask_of(
    pattern: HeadPattern,
    layout: PromptLayout,
    queries: torch.Tensor | None = None,
    keys: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Which keys each token sees by a pattern, `[tokens, tokens]` bool.

    Args:
        queries, keys: one head's states, `[tokens, head_dim]`; dynamic patterns need them.
    """
    full = torch.zeros(len(layout), len(layout), dtype=torch.bool)
    parts = [(whole(layout), pattern)]
    if isinstance(pattern, Boundary):
        parts = [(plane_of(layout, name), inner) for name, inner in pattern.parts(layout)]
    for plane, inner in parts:
        if inner.kind == "dense":
            inside = causal(plane, slice(None))[2]
        else:
            seen = row = None
            if inner.dynamic and queries is not None and keys is not None:
                factor = queries.shape[-1] ** -0.5 if scale is None else scale
                last = getattr(inner, "last_q", LAST)
                seen = probe(queries[None], keys[None], plane, factor, last=last)
                row = States(queries[None], keys[None], keys[None], factor)
            inside = build([inner], plane, seen, row).seen(0, plane)
        full[plane.queries[:, None], plane.keys] = inside
    return full
