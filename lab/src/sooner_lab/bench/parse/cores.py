"""Whether plain decoding would make use of the cores that a pipelined drafter works on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from .arms import Stable
from .figures import ratio
from .settings import ParseBenchSettings
from .sheets import sample_sheets

Progress = Callable[[str], None]


def cores(settings: ParseBenchSettings, stable: Stable, progress: Progress) -> dict[str, Any]:
    """Plain decoding with the bench's threads and with one for each core, in turns.

    Returns:
        `threads`, `cores`, and `speedup` of the latter over the former, with its `interval`.
    """
    many = os.cpu_count() or 1
    told: dict[str, Any] = {"threads": settings.threads, "cores": many}
    if many == settings.threads:
        return {**told, "speedup": 1.0, "interval": None}
    if not settings.core_pages:
        return {**told, "speedup": None, "interval": None}
    seconds: dict[int, list[float]] = {settings.threads: [], many: []}
    plain = stable.contender("plain")
    try:
        for place, sheet in enumerate(
            sample_sheets(1 + settings.core_pages, "overhead", settings.seed)
        ):
            for threads, spent in seconds.items():
                progress(f"plain decoding with {threads} threads: page {sheet.number}")
                torch.set_num_threads(threads)
                said = plain.say(sheet, None)
                if place and not said.truncated:  # the first page warms up
                    spent.append(said.e2e_seconds)
    finally:
        torch.set_num_threads(settings.threads)
    found = ratio(seconds[settings.threads], seconds[many], settings.seed)
    return {**told, "speedup": found["value"], "interval": found["interval"]}
