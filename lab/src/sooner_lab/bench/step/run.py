"""`sooner bench step`: what a step of each method launches, waits for and moves, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..run import Recorder
from . import rounds
from .engine import HF, STATIC, StepFactory, qwen2_5_7b, tiny
from .guard import (
    NoWaiting,
    StepGrowsError,
    StepWaitsError,
    Waits,
    check_static,
    compilation,
    fake_cuda,
)
from .operations import Operations
from .settings import LAW, StepSettings
from .simulated import to_device

LAYERS = 4
"""Layers of the models that operations are counted on."""


def run(settings: StepSettings, progress: Callable[[str], None]) -> dict[str, Any]:
    """Count the steps of every method and of HF.

    Returns:
        `methods` and `hf`, a row each; `hf_ops_per_round`, of the forward that `generate` makes on
        the same tensors and of its criteria; `faults`, what the laws of a static step forbid and a
        method that has one does, a line each.
    """
    recorder = Recorder("step", settings, model="Qwen2.5-7B")
    recorder.origin("cpu", "float32", 0)
    hf = []
    for factory in HF:
        progress(factory.method)
        compiles = settings.compile and factory.method == "hf-static"
        hf.append(static_row(factory, settings, compiles))
    progress("hf-generate")
    model = tiny(LAYERS)
    whole = rounds.measure_generate(to_device(tiny(LAYERS)))
    no_step = dict.fromkeys(name for name in hf[0] if name.endswith("_per_round"))
    no_step |= dict.fromkeys(("graph_breaks", "recompiles", "verify_bytes_over_plain"))
    hf.append({**no_step, "method": whole.method, "engine": "hf", **whole.figures()})
    # What `generate` does beside its forward, on the CPU, and its forward on fake CUDA tensors.
    allowed = hf[0]["ops_per_round"] + whole.ops - ops_on_cpu(HF[0], model)
    methods = []
    made, placed = rounds.methods(model), to_device(model)
    for name in settings.methods:
        progress(name)
        row = static_row(STATIC[name], settings, settings.compile)
        row |= rounds.measure(name, placed, made[name]()).figures()
        methods.append({**row, "faults": faults(row, allowed)})
    red = [f"{row['method']}: {fault}" for row in methods for fault in row["faults"]]
    return recorder.add(
        ops_layers=LAYERS, hf_ops_per_round=allowed, methods=methods, hf=hf, faults=red
    )


def static_row(factory: StepFactory, settings: StepSettings, compiles: bool) -> dict[str, Any]:
    """The figures of a step on fake CUDA tensors; compiled, of a tiny model on the CPU."""
    rows, entries = settings.rows, factory.entries
    with fake_cuda(), torch.inference_mode():
        model = qwen2_5_7b(LAYERS)
        step = factory.build(model, rows, settings.short)
        step(rows, entries)  # whatever is allocated once
        operations, waits = counted(step, rows, entries, factory)
        long = factory.build(model, rows, settings.length)
        long(rows, entries)
        more, _ = counted(long, rows, entries, factory)
        row: dict[str, Any] = {
            "method": factory.method,
            "engine": "hf" if factory in HF else "static",
            "entries": entries,
            "ops_per_round": operations.launched.total(),
            "views_per_round": operations.views.total(),
            "ops_at_length": more.launched.total(),
            "host_reads_per_round": waits.reads.total(),
            "uploads_per_round": waits.uploads.total(),
            "waits": lines(waits),
            "first_wait": first_wait(lambda: step(rows, entries)),
            "growth": growth(lambda: step(rows, entries)),
        }
    row |= bytes_of_steps(factory, settings)
    row |= {"graph_breaks": None, "recompiles": None}
    if compiles:
        small = factory.build(tiny(1), rows, 30)
        counts = compilation(small, [(rows, 1), (rows, max(entries, 8))])
        row |= {"graph_breaks": counts.graph_breaks, "recompiles": counts.recompiles}
    return row


def counted(
    step: Callable[..., None], rows: int, entries: int, factory: StepFactory
) -> tuple[Operations, Waits]:
    """One call under both counters."""
    with Operations(factory.declared) as operations, Waits() as waits:
        step(rows, entries)
    return operations, waits


def bytes_of_steps(factory: StepFactory, settings: StepSettings) -> dict[str, Any]:
    """Bytes of a plain step and of a verification, each behind a prompt of `length` tokens."""
    with fake_cuda(), torch.inference_mode():
        model = qwen2_5_7b(settings.layers)
        results = []
        for entries in (1, settings.block):
            step = factory.build(model, settings.rows, settings.length)
            step(settings.rows, entries)
            operations, _ = counted(step, settings.rows, entries, factory)
            results.append(operations.nbytes.total())
    plain, verify = results
    return {
        "plain_bytes": plain,
        "verify_bytes": verify,
        "verify_bytes_over_plain": verify / plain,
    }


def first_wait(step: Callable[[], None]) -> str | None:
    """Where a step would wait first, or `None`."""
    try:
        with NoWaiting():
            step()
    except StepWaitsError as error:
        return str(error.wait)
    return None


def growth(step: Callable[[], None]) -> str | None:
    """Where consecutive steps differ first, or `None`."""
    try:
        check_static(step)
    except StepGrowsError as error:
        return str(error)
    return None


def lines(waits: Waits) -> list[str]:
    """What waited, most frequent first."""
    return [f"{times} {wait}" for (_, wait), times in waits.lines.most_common()]


def ops_on_cpu(factory: StepFactory, model: Any) -> int:
    """Operations of a plain step in fp32, where whole rounds are counted."""
    with torch.inference_mode():
        step = factory.build(model, 1, rounds.PROMPT)
        return counted(step, 1, 1, factory)[0].launched.total()


def faults(row: dict[str, Any], allowed: float) -> list[str]:
    """What a static step may not do, of what it does.

    Args:
        allowed: operations of HF's own round.
    """
    lines = []
    if row["first_wait"]:
        lines.append(f"waits: {row['first_wait']}")
    if row["growth"]:
        lines.append(row["growth"])
    if row["ops_at_length"] != row["ops_per_round"]:
        lines.append(f"{row['ops_per_round']} operations, {row['ops_at_length']} when longer")
    for name in ("graph_breaks", "recompiles"):
        if row[name]:
            lines.append(f"{row[name]} {name.replace('_', ' ')}")
    if row["verify_bytes_over_plain"] > LAW:
        lines.append(f"a verification moves {row['verify_bytes_over_plain']:.2f} x a plain step")
    if row["method"] == "plain" and row["ops_per_round"] > allowed:
        lines.append(f"{row['ops_per_round']} operations, HF's own round {allowed:.0f}")
    return lines
