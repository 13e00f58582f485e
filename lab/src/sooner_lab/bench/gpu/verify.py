"""What verifying a block costs over a plain step, by block and context, launched alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from sooner.engine.acceptance import follow_choices
from sooner.engine.graphs.recorder import CudaGraphs
from sooner.engine.graphs.steps import StepGraphs
from sooner.engine.loop import step
from sooner_lab.bench.step.engine import StaticSteps, bush, chain

from .bench import GpuBench
from .texts import Rerun
from .timing import Run

WARM_UPS = 3
"""Calls of a step before it is timed: as it is, captured, replayed."""

SHAPES = {"eager chain": chain, "graph chain": chain, "graph tree": bush}


def verify(bench: GpuBench, out: dict[str, Any]) -> None:
    """Seconds of the target's whole step (forward, judge, commit), blocks interleaved.

    Writes `cells`: of each `context`, `arm` (eager or graph, chain or tree) and `block` (entries)
    seconds and `over_plain`, the ratio to a block of one of the same launching at that context.
    """
    settings = bench.settings
    out |= {"model": settings.target, "cells": [], "note": "committed slots hold zeros"}
    model = bench.models.get(settings.target)
    for context in settings.verify_contexts:
        if bench.is_late(out, f"context {context}"):
            continue
        bench.progress(f"verify: context {context}")
        arms = steps_of(bench, model, context, settings.verify_blocks)
        with torch.inference_mode():
            timed = bench.clock.interleaved(arms, settings.repeats, WARM_UPS)
        for name, timing in timed.items():
            arm, block = name.rsplit(" ", 1)
            cell: dict[str, Any] = {"context": context, "arm": arm, "block": int(block)}
            cell |= timing
            plain = timed[f"{arm.split()[0]} chain 1"]
            if "seconds" in timing and "seconds" in plain:
                cell["over_plain"] = timing["seconds"] / plain["seconds"]
            out["cells"].append(cell)
        del arms
        bench.clock.free()
        bench.keep()


def steps_of(bench: GpuBench, model: Any, context: int, blocks: tuple[int, ...]) -> dict[str, Run]:
    """Steps of one row over blocks of several sizes, launched one by one and as graphs."""
    graphs = StepGraphs(CudaGraphs(bench.device) if bench.clock.is_cuda else Rerun(), max(blocks))
    with torch.inference_mode():
        steps = StaticSteps(model, 1, context, chain, follow_choices)
    takes: dict[str, Callable[..., Any]] = {"eager": step, "graph": graphs.step}
    arms: dict[str, Run] = {}
    for name, parents in SHAPES.items():
        for block in blocks:
            if block > 1 or parents is chain:
                arms[f"{name} {block}"] = _arm(steps, takes[name.split()[0]], parents, block)
    return arms


def _arm(steps: StaticSteps, take: Callable[..., Any], parents: Any, block: int) -> Run:
    steps.parents = parents
    tree = steps.draft(block)

    def run() -> None:
        steps.runner.rewind([steps.length] * steps.rows)
        processing = steps.processing
        take(
            steps.runner, replace(tree), follow_choices, processing, steps.state, processing.scores
        )

    return run
