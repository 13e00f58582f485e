"""A plain step of random models of real shapes: HF eager, HF compiled, sooner."""

from __future__ import annotations

from typing import Any

from .bench import GpuBench
from .models import prompts, step_bytes
from .texts import (
    ArmTexts,
    Decode,
    compile_options,
    graph_options,
    hf,
    interleaved,
    sooner_arm,
)

ONE_COMPILE = "one compile a run"
"""Why an arm that compiles is timed on the first model alone."""

COMPILING = 120.0
"""Seconds that compiling a 7B's step may take."""


def step(bench: GpuBench, out: dict[str, Any]) -> None:
    """Seconds a token of every arm by model.

    Writes `models`: of each `model` its `bytes` (what a step has to read), and `arms`: seconds of
    a step, `share_of_copy` (the bytes a second of a step over a copy's) and `identical` (whether
    the text is HF's own). An arm that was left out says why in `missing`.
    """
    settings = bench.settings
    out["models"] = []
    for number, name in enumerate(settings.shapes):
        if bench.is_late(out, name):
            break
        bench.progress(f"step: {name}")
        out["models"].append(of_model(bench, name, compiles=settings.compiles and not number))
        bench.models.drop(settings.target, settings.draft)
        bench.keep()


def of_model(bench: GpuBench, name: str, compiles: bool) -> dict[str, Any]:
    """The arms of one model."""
    settings = bench.settings
    model = bench.models.get(name)
    context, new = settings.step_context, settings.step_tokens
    ids = prompts(1, context, new, model.config.vocab_size, bench.device, settings.seed)
    nbytes = step_bytes(model, 1, context + new // 2)
    arms: dict[str, Decode] = {"hf-eager": hf(bench, model)}
    missing = {}
    if not compiles:
        missing["hf-compiled"] = ONE_COMPILE
    elif bench.clock.is_cuda and bench.deadline.left < COMPILING:
        missing["hf-compiled"] = f"compiling may take {COMPILING:.0f} s"
    else:
        arms["hf-compiled"] = hf(bench, model, **compiled(bench))
    arms["sooner"] = sooner_arm(bench, model, graphs="off")
    arms["sooner-graphs"] = sooner_arm(bench, model, **graph_options(bench))
    if "hf-compiled" in arms:
        arms["sooner-compiled"] = sooner_arm(bench, model, **compile_options(bench))
    else:
        missing["sooner-compiled"] = missing["hf-compiled"]
    texts = interleaved(bench, arms, ids, new, settings.step_runs)
    found = {arm: figures(bench, one, texts["hf-eager"], nbytes) for arm, one in texts.items()}
    found |= {arm: {"missing": why} for arm, why in missing.items()}
    return {"model": name, "context": context, "tokens": new, "bytes": nbytes, "arms": found}


def compiled(bench: GpuBench) -> dict[str, Any]:
    """`generate`'s arguments for its static cache and compiled steps.

    `generate` compiles on GPUs alone unless told; a CPU proves the way without a compiler.
    """
    from transformers import CompileConfig

    config = CompileConfig(mode="reduce-overhead")
    if not bench.clock.is_cuda:
        config = CompileConfig(backend="eager", mode=None)  # type: ignore[arg-type]
        config._compile_all_devices = True  # type: ignore[assignment]
    return {"cache_implementation": "static", "compile_config": config}


def figures(bench: GpuBench, one: ArmTexts, own: ArmTexts, nbytes: int) -> dict[str, Any]:
    """The figures of an arm; `own` are HF's texts."""
    if one.error is not None:
        return {"missing": one.error}
    found = one.step.as_dict()
    rate = nbytes / found["seconds"]
    return {
        **found,
        "ms_per_token": 1e3 * found["seconds"],
        "share_of_copy": rate / bench.bandwidth,
        "identical": None if own.tokens is None else one.tokens == own.tokens,
    }
