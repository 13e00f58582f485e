"""Block attention against the reference, then against torch's own attention and a copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sooner.engine.attention import reference
from sooner.engine.attention.block import PAGE, Block, pack_ancestors
from sooner.engine.attention.context import block_attention
from sooner.engine.tree import Tree

from .bench import GpuBench
from .timing import replayed, report

CACHE = 128 << 20
"""Bytes of keys and values that are read between two reads of the same: more than any L2 holds."""

WIDE = 2 << 30
"""Bytes of scores up to which the reference computes in fp64 and for every row."""

PEAKED = 3.0
"""Factor of the queries where errors are measured: a softmax over normal scores is so flat that a
forgotten slot would not show."""

TOLERATED = 2**-7
"""Error, over the largest output, that bf16 is allowed in any case: one rounding of weights and one
of outputs."""

MAX_SCORES = 4 << 30
"""Bytes of fp32 scores up to which SDPA's math backend, which writes them, is timed."""

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


@dataclass(frozen=True)
class Stores:
    """Keys and values of some rows, several copies of both.

    Attributes:
        keys, values: `[copies, rows, kv_heads, capacity, dim]`.
        context: committed slots.
    """

    keys: Tensor
    values: Tensor
    context: int


def kernels(bench: GpuBench, out: dict[str, Any]) -> None:
    """Errors and times by context, rows and block.

    Writes `cells`: of each `context`, `rows` and `block` (entries) `checks`, of chains and of
    trees, and, if none is red, the `arms`: seconds of a call, bytes of keys and values a second
    (once over, whatever an arm reads), and their share of a copy's. `ok` is whether no check is
    red.
    """
    settings = bench.settings
    out |= {"implementation": implementation(bench.device), "cells": [], "ok": None}
    out["note"] = (
        "sdpa-flash takes no mask: entries of a block see each other's future; expanded arms "
        "repeat grouped keys and values inside the time, as transformers does"
    )
    for context in settings.contexts:
        for rows in settings.kernel_rows:
            stores = random_stores(bench, rows, context)
            for block in settings.blocks:
                if bench.is_late(out, f"context {context}, rows {rows}, block {block}"):
                    break
                bench.progress(f"kernels: context {context}, rows {rows}, block {block}")
                out["cells"].append(cell(bench, stores, block))
                out["ok"] = all(cell_row["ok"] for cell_row in out["cells"])
            del stores
            bench.clock.free()
            bench.keep()


def implementation(device: torch.device) -> str:
    """What `block_attention` runs on a device."""
    return "triton" if device.type == "cuda" else device.type


def random_stores(bench: GpuBench, rows: int, context: int) -> Stores:
    """Normal states with room for the largest block, a whole number of pages."""
    settings = bench.settings
    capacity = -(-(context + max(settings.blocks)) // PAGE) * PAGE
    shape = (rows, settings.kv_heads, capacity, settings.head_dim)
    nbytes = 2 * rows * settings.kv_heads * context * settings.head_dim * bench.dtype.itemsize
    copies = min(-(-CACHE // nbytes), 64) if bench.clock.is_cuda else 1
    return Stores(_normal(bench, copies, *shape), _normal(bench, copies, *shape), context)


def _normal(bench: GpuBench, *shape: int) -> Tensor:
    generator = torch.Generator(bench.device).manual_seed(bench.settings.seed)
    return torch.randn(*shape, generator=generator, device=bench.device, dtype=bench.dtype)


def cell(bench: GpuBench, stores: Stores, entries: int) -> dict[str, Any]:
    """Errors, then times unless one is red."""
    rows, context = stores.keys.shape[1], stores.context
    figures: dict[str, Any] = {"context": context, "rows": rows, "block": entries}
    figures["checks"] = [check(bench, stores, entries, tree=False)]
    if entries > 1 and rows == 1:  # every variant of the kernel takes seconds to compile
        figures["checks"].append(check(bench, stores, entries, tree=True))
    figures["ok"] = all(result["ok"] for result in figures["checks"])
    if figures["ok"]:
        figures["arms"] = times(bench, stores, entries)
    return figures


def check(bench: GpuBench, stores: Stores, entries: int, tree: bool) -> dict[str, Any]:
    """The largest error of block attention, and of torch's own in the same dtype.

    Rows have lengths of their own, and slots that nobody may see hold NaN.

    Returns:
        `error` and `sdpa_error`, each over the largest output of the reference; `ok` says that
        the first is finite and at most twice the second, or what a rounding explains.
    """
    settings = bench.settings
    scores = settings.heads * entries * stores.context
    rows = stores.keys.shape[1] if 8 * stores.keys.shape[1] * scores <= WIDE else 1
    wide = torch.float64 if 8 * rows * scores <= WIDE else torch.float32
    lengths = [max(stores.context - 37 * row, 0) for row in range(rows)]
    cached = torch.tensor(lengths, device=bench.device)
    block = Block(cached)
    if tree:
        parents = random_parents(rows, entries - 1, settings.seed).to(bench.device)
        drafts = Tree(torch.zeros_like(parents), parents, torch.full_like(cached, entries - 1))
        block = Block(cached, None, pack_ancestors(drafts.ancestors()), drafts.depths())
    keys, values = stores.keys[0, :rows].clone(), stores.values[0, :rows].clone()
    for row, length in enumerate(lengths):
        keys[row, :, length + entries :] = torch.nan
        values[row, :, length + entries :] = torch.nan
    query = PEAKED * _normal(bench, rows, entries, settings.heads, settings.head_dim)
    query = query.transpose(1, 2)  # as a decoder hands it over
    scale = settings.head_dim**-0.5
    truth = reference.attend(query.to(wide), keys.to(wide), values.to(wide), block, scale)
    output = block_attention(query, keys, values, block)
    error = relative_error(output, truth)
    seen = max(lengths) + entries
    slots = torch.arange(seen, device=bench.device)
    mask = reference.seen_slots(block, entries, slots)[:, None]  # [rows, 1, entries, slots]
    group = settings.heads // settings.kv_heads
    sdpa_output = scaled_dot_product_attention(
        query,
        keys[:, :, :seen].nan_to_num(0.0).repeat_interleave(group, 1),
        values[:, :, :seen].nan_to_num(0.0).repeat_interleave(group, 1),
        attn_mask=mask,
    )
    about = {"tree": tree, "rows": rows, "reference": str(wide).removeprefix("torch.")}
    return about | judged(error, relative_error(sdpa_output, truth))


def relative_error(output: Tensor, truth: Tensor) -> float | None:
    """The largest error over the largest output; `None` if an output is no number."""
    error = float((output - truth).abs().max() / truth.abs().max())
    return error if math.isfinite(error) else None


def judged(error: float | None, sdpa_error: float | None) -> dict[str, Any]:
    """An error, torch's own, and whether the first is allowed beside the second."""
    allowed = max(2 * (sdpa_error or 0.0), TOLERATED)
    return {"error": error, "sdpa_error": sdpa_error, "ok": error is not None and error <= allowed}


def random_parents(rows: int, nodes: int, seed: int) -> Tensor:
    """Parents of random trees, `[rows, nodes]`; each comes before its child, the root is -1."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(rows, nodes, generator=generator)
    return (share * (torch.arange(nodes) + 1)).long() - 1


def times(bench: GpuBench, stores: Stores, entries: int) -> dict[str, dict[str, Any]]:
    """Seconds of a call of each arm; of one that can't run, `missing` says why."""
    settings, clock = bench.settings, bench.clock
    rows, context, copies = stores.keys.shape[1], stores.context, stores.keys.shape[0]
    query = _normal(bench, rows, entries, settings.heads, settings.head_dim).transpose(1, 2)
    calls = max(copies, 2) if clock.is_cuda else 1
    nscores = rows * settings.heads * entries * context
    figures: dict[str, dict[str, Any]] = {}
    runs: dict[str, Callable[[], Any]] = {}
    pool = torch.cuda.graph_pool_handle() if clock.is_cuda else None
    with torch.inference_mode():
        for name, call in arms(stores, query, bench.device).items():
            if "math" in name and 4 * nscores > MAX_SCORES:
                figures[name] = {"missing": f"{4 * nscores / 2**30:.0f} GiB of scores"}
                continue
            try:
                run, how = replayed(call, calls, clock, pool)
            except Exception as error:
                figures[name] = {"missing": report(error)}
                clock.free()
                continue
            runs[name], figures[name] = run, {"timed": how}
        timed = clock.interleaved(runs, settings.repeats, calls=calls)
    nbytes = 2 * stores.keys[0, :, :, : context + entries].nbytes
    for name, timing in timed.items():
        figures[name] = timing if "missing" in timing else {**figures[name], **timing}
        if "seconds" in timing:
            rate = nbytes / timing["seconds"]
            figures[name] |= {"bytes_per_second": rate, "share_of_copy": rate / bench.bandwidth}
    return figures


def arms(stores: Stores, query: Tensor, device: torch.device) -> dict[str, Callable[[int], Any]]:
    """Our kernel and torch's backends; call number `i` reads copy `i` of keys and values."""
    rows, heads, entries, _ = query.shape
    copies, seen = stores.keys.shape[0], stores.context + entries
    block = Block(torch.full((rows,), stores.context, device=device))
    slots = torch.arange(seen, device=device)
    mask = torch.zeros(entries, seen, dtype=query.dtype, device=device)
    if entries > 1:
        hidden = ~reference.seen_slots(block, entries, slots)[0]  # [entries, slots]
        mask = mask.masked_fill(hidden, torch.finfo(query.dtype).min)
    group = heads // stores.keys.shape[2]

    def ours(call: int) -> Tensor:
        return block_attention(
            query, stores.keys[call % copies], stores.values[call % copies], block
        )

    def sdpa(backend: str, is_grouped: bool) -> Callable[[int], Any]:
        bias = None if backend == "flash" or entries == 1 else mask[None, None]

        def call(number: int) -> Tensor:
            keys = stores.keys[number % copies, :, :, :seen]
            values = stores.values[number % copies, :, :, :seen]
            if not is_grouped:
                keys = keys.repeat_interleave(group, 1)
                values = values.repeat_interleave(group, 1)
            with sdpa_kernel(BACKENDS[backend]):
                return scaled_dot_product_attention(
                    query, keys, values, attn_mask=bias, enable_gqa=is_grouped
                )

        return call

    calls: dict[str, Callable[[int], Any]] = {"sooner": ours}
    for backend in BACKENDS:
        for is_grouped in (True, False):
            name = f"sdpa-{backend}-{'grouped' if is_grouped else 'expanded'}"
            calls[name] = sdpa(backend, is_grouped)
    return calls
