"""What captured graphs take: memory beyond weights and KV, and the time to capture them."""

from __future__ import annotations

from typing import Any

import torch

from .bench import GpuBench
from .models import prompts
from .texts import NO_GRAPHS, graph_options, sooner_arm


def graphs(bench: GpuBench, out: dict[str, Any]) -> None:
    """Memory and time of a first text with graphs, over a later one's.

    Writes `bytes` (memory that stays reserved beyond what a text without graphs takes) and
    `capture_seconds` (a first text's time less a second one's); both `None`, with the `reason`,
    where the engine has no graphs or there is no CUDA.
    """
    out |= {"bytes": None, "capture_seconds": None}
    options = graph_options()
    if options is None or not bench.clock.is_cuda:
        out["reason"] = NO_GRAPHS if options is None else "no CUDA"
        return
    settings = bench.settings
    model = bench.models.get(settings.target)
    vocab, new = model.config.vocab_size, settings.step_tokens
    ids = prompts(1, settings.step_context, new, vocab, bench.device, settings.seed)

    def seconds_and_bytes(decode: Any) -> tuple[float, int]:
        seconds = bench.clock.seconds(lambda: decode(ids, new))
        bench.clock.free()
        return seconds, torch.cuda.memory_reserved(bench.device)

    _, before = seconds_and_bytes(sooner_arm(bench, model))
    first, after = seconds_and_bytes(sooner_arm(bench, model, **options))
    second, _ = seconds_and_bytes(sooner_arm(bench, model, **options))
    out |= {"bytes": after - before, "capture_seconds": first - second}
