"""A plain step of random models of real shapes: HF eager, HF compiled, sooner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .bench import GpuBench
from .models import prompts, step_bytes
from .texts import ArmTexts, Decode, compile_options, hf, interleaved, sooner_arm

SINGLE_COMPILE = "one compile a run"
"""Why an arm that compiles is timed on the first model alone."""

COMPILING = 60.0
"""Seconds that compiling a 7B's step may take."""


def step(bench: GpuBench, out: dict[str, Any]) -> None:
    """Every arm by model.

    Writes `models`: of each `model` its `bytes` (what a step has to read), and `arms`: the figures
    of `ArmTexts` against HF's eager text, and `share_of_copy`, the bytes a second of a step over
    a copy's. An arm that was left out says why in `missing`.
    """
    settings = bench.settings
    out["models"] = []
    for number, name in enumerate(settings.shapes):
        if bench.is_late(out, name):
            break
        bench.progress(f"step: {name}")
        row: dict[str, Any] = {}
        out["models"].append(row)
        of_model(bench, name, out, row, compiles=settings.compiles and not number)
        bench.models.drop(settings.target, settings.draft)


def of_model(
    bench: GpuBench, name: str, section: dict[str, Any], out: dict[str, Any], compiles: bool
) -> None:
    """The arms of one model, into its row of a section."""
    settings = bench.settings
    model = bench.models.get(name)
    context, new = settings.step_context, settings.step_tokens
    inputs = prompts(1, context, new, model.config.vocab_size, bench.device, settings.seed)
    nbytes = step_bytes(model, 1, context + new // 2)
    out |= {"model": name, "context": context, "tokens": new, "bytes": nbytes, "arms": {}}
    arms: dict[str, Decode] = {
        "hf-eager": hf(bench, model),
        "sooner": sooner_arm(bench, model, graphs="off"),
        "sooner-graphs": sooner_arm(bench, model),
        "hf-compiled": hf(bench, model, **compiled(bench)),
        "sooner-compiled": sooner_arm(bench, model, **compile_options(bench)),
    }
    missing = None if compiles else SINGLE_COMPILE
    if compiles and bench.clock.is_cuda and bench.deadline.left < COMPILING:
        missing = f"compiling may take {COMPILING:.0f} s"
    if missing is not None:
        del arms["hf-compiled"], arms["sooner-compiled"]

    def write(texts: Mapping[str, ArmTexts]) -> None:
        figures = {arm: text.figures(texts["hf-eager"]) for arm, text in texts.items()}
        for text in figures.values():
            if "round_seconds" in text:
                text["share_of_copy"] = nbytes / text["round_seconds"] / bench.bandwidth
        if missing is not None:
            figures |= {arm: {"missing": missing} for arm in ("hf-compiled", "sooner-compiled")}
        out["arms"] = figures

    interleaved(bench, section, arms, inputs, new, write)


def compiled(bench: GpuBench) -> dict[str, Any]:
    """`generate`'s arguments for its static cache and compiled steps.

    `generate` compiles on GPUs alone unless it is made to; a CPU proves the way without a compiler.
    """
    from transformers import CompileConfig

    config = CompileConfig(mode="reduce-overhead")
    if not bench.clock.is_cuda:
        config = CompileConfig(backend="eager", mode=None)  # type: ignore[arg-type]
        config._compile_all_devices = True  # type: ignore[assignment]
    return {"cache_implementation": "static", "compile_config": config}
