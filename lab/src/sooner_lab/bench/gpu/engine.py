"""The engine under requests that join and leave, with an idle gap between two waves of them."""

from __future__ import annotations

import time
from typing import Any

import sooner
from sooner.engine.attention.block import PAGE

from .bench import GpuBench
from .models import prompts, script, set_script
from .texts import Captures, graph_options
from .timing import Timing

EVERY = 4
"""Engine steps from one request to the next."""


def engine(bench: GpuBench, out: dict[str, Any]) -> None:
    """Waves of requests, of which each joins the batch a few steps behind the one before it.

    Writes `arms`: of each `arm` (plain and drafted, slots and pages) `waves`; each wave begins
    with an engine that has been idle. Of a wave: `identical` (every request counts upwards),
    `tokens_per_second` from its first step to its last, `round_seconds` (median of its later
    steps, and `interval`), and `captures`.
    """
    settings = bench.settings
    target, draft = (bench.models.get(name) for name in (settings.target, settings.draft))
    set_script(draft, script(settings.rows_acceptance, draft.config.vocab_size, settings.seed))
    out |= {"model": settings.target, "draft": settings.draft, "rows": settings.engine_rows}
    out["arms"] = []
    drafted = sooner.Speculative(draft, settings.num_draft_tokens)
    each = settings.engine_context + settings.engine_tokens + drafted.largest_block()
    paged: dict[str, Any] = {"pages": 2 * settings.engine_rows * (1 + -(-each // PAGE))}
    paged["paged"] = True
    arms: list[tuple[str, Any, dict[str, Any]]] = [
        ("plain", None, {}), ("speculative", drafted, {}),
        ("plain paged", None, paged), ("speculative paged", drafted, paged),
    ]  # fmt: skip
    for name, method, options in arms:
        if bench.is_late(out, name):
            continue
        bench.progress(f"engine: {name}")
        arm: dict[str, Any] = {"arm": name, "waves": []}
        out["arms"].append(arm)
        try:
            made = sooner.Engine(
                target, method, max_rows=settings.engine_rows, **graph_options(bench), **options
            )
            for _ in range(settings.engine_waves):
                arm["waves"].append(wave(bench, made))
        except Exception as error:
            arm |= bench.failed(error)
        bench.clock.free()
        bench.keep()


def wave(bench: GpuBench, made: Any) -> dict[str, Any]:
    """Admit a request every few steps, until all have ended; then the engine is idle."""
    settings, captures = bench.settings, Captures()
    rows, new = settings.engine_rows, settings.engine_tokens
    vocab = made.model.config.vocab_size
    inputs = prompts(rows, settings.engine_context, new, vocab, bench.device, settings.seed)
    bench.clock.wait()
    start, marks, requests = time.perf_counter(), [bench.clock.mark()], list[Any]()
    with captures.counting():
        while len(requests) < rows or not made.is_idle:
            if len(marks) > EVERY * len(requests) and len(requests) < rows:
                row = {name: values[len(requests)][None] for name, values in inputs.items()}
                requests.append(made.add_request(row, max_new_tokens=new, do_sample=False))
            made.step()
            marks.append(bench.clock.mark())
    made.step()  # finds nobody
    bench.clock.wait()
    seconds = time.perf_counter() - start
    for request in requests:
        if request.error is not None:
            raise request.error
    firsts = inputs["input_ids"][:, -1].tolist()
    expected = [[list(range(first + 1, first + 1 + new))] for first in firsts]
    figures: dict[str, Any] = {"identical": [job.tokens for job in requests] == expected}
    if figures["identical"]:
        gaps = bench.clock.gaps(marks)
        steps = Timing.of(gaps[len(gaps) // 2 :])
        figures |= {"tokens_per_second": rows * new / seconds, "round_seconds": steps.seconds}
        figures |= {"interval": list(steps.interval), "captures": captures.count}
    return figures
