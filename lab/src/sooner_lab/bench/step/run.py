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
"""Most layers of the models that operations are counted on."""


def run(settings: StepSettings, progress: Callable[[str], None]) -> dict[str, Any]:
    """Count the steps of every method and of HF.

    Returns:
        `methods` and `hf`, a row each; `faults`, what the laws of a static step forbid and a method
        does, a line each.
    """
    recorder = Recorder("step", settings, model="Qwen2.5-7B")
    recorder.origin("cpu", "float32", 0)
    progress(HF.method)
    hf = [static_row(HF, settings, settings.compile)]
    progress("hf-generate")
    layers = min(LAYERS, settings.layers)
    model = tiny(layers)
    whole = rounds.measure_generate(to_device(tiny(layers)))
    no_step = dict.fromkeys(name for name in hf[0] if name.endswith("_per_round"))
    no_step |= dict.fromkeys(("graph_breaks", "recompiles", "verify_bytes_over_plain"))
    hf.append({**no_step, "method": whole.method, "engine": "hf", **whole.figures()})
    methods = []
    made, placed = rounds.methods(model), to_device(model)
    for name in settings.methods:
        progress(name)
        row = static_row(STATIC[name], settings, settings.compile)
        row |= rounds.measure(name, placed, made[name]()).figures()
        red = faults(row)
        if name == "plain" and row["ops_of_round"] > whole.ops:
            red.append(f"{row['ops_of_round']:.0f} operations a round, HF's own {whole.ops:.0f}")
        methods.append({**row, "faults": red})
    lines = [f"{row['method']}: {fault}" for row in methods for fault in row["faults"]]
    return recorder.add(ops_layers=layers, methods=methods, hf=hf, faults=lines)


def static_row(factory: StepFactory, settings: StepSettings, compiles: bool) -> dict[str, Any]:
    """The figures of a step on fake CUDA tensors; compiled, of a tiny model on the CPU."""
    rows, entries = settings.rows, factory.entries
    with fake_cuda(), torch.inference_mode():
        model = qwen2_5_7b(min(LAYERS, settings.layers))
        step = factory.build(model, rows, settings.short)
        step(rows, entries)  # whatever is allocated once
        operations, waits = counted(step, rows, entries, factory)
        long = factory.build(model, rows, settings.length)
        long(rows, entries)
        more, _ = counted(long, rows, entries, factory)
        row: dict[str, Any] = {
            "method": factory.method,
            "engine": "hf" if factory is HF else "static",
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
    return {"plain_bytes": plain, "verify_bytes": verify, "verify_bytes_over_plain": verify / plain}


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


def faults(row: dict[str, Any]) -> list[str]:
    """Return what a static step may not do, of what it does."""
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
    return lines
