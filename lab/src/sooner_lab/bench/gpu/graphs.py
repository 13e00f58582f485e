"""What captured graphs take: memory beyond weights and KV, and the time to capture them."""

from __future__ import annotations

from typing import Any

import torch

from sooner.engine.acceptance import follow_choices
from sooner.engine.graphs.buckets import ENTRIES
from sooner.engine.graphs.recorder import MAX_CELLS, CudaGraphs
from sooner.engine.graphs.steps import StepGraphs
from sooner_lab.bench.step.engine import StaticSteps, chain

from .bench import GpuBench
from .texts import Rerun


def graphs(bench: GpuBench, out: dict[str, Any]) -> None:
    """Capture the steps of every bucket, up to the most rows of a batch.

    Writes `buckets` (`rows`, `entries` and `capture_seconds` of each), their `capture_seconds`
    together, `graphs`, their number, and `bytes`: what is in the pool, and what graphs read and
    leave beside weights, keys and values.
    """
    settings = bench.settings
    model = bench.models.get(settings.target)
    recorder = CudaGraphs(bench.device) if bench.clock.is_cuda else Rerun()
    step_graphs = StepGraphs(recorder, ENTRIES[-1])
    rows = settings.graph_rows
    out |= {"model": settings.target, "buckets": []}
    with torch.inference_mode():
        steps = StaticSteps(
            model, rows, settings.engine_context, chain, follow_choices, graphs=step_graphs
        )
        steps(rows, 1)  # is not padded
        while rows:
            for entries in ENTRIES:
                if rows * entries > MAX_CELLS or bench.is_late(out, f"{rows} x {entries}"):
                    continue
                before = step_graphs.capture_seconds
                for _ in range(3):  # captured, then replayed
                    steps(rows, entries)
                seconds = step_graphs.capture_seconds - before
                out["buckets"].append(
                    {"rows": rows, "entries": entries, "capture_seconds": seconds}
                )
            rows = 1 << (rows - 1).bit_length() >> 1
    bench.clock.wait()
    out["graphs"] = 2 * len(out["buckets"])
    out["capture_seconds"] = step_graphs.capture_seconds
    out["bytes"] = step_graphs.nbytes
    if step_graphs.records.failure is not None:
        raise RuntimeError(step_graphs.records.failure)
