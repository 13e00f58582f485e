"""What verifying a block costs over a plain step, by block and context."""

from __future__ import annotations

from typing import Any

from .bench import GpuBench
from .forwards import PREFILLED, Forwards
from .timing import Timing


def verify(bench: GpuBench, out: dict[str, Any]) -> None:
    """Seconds of the target's forward, blocks interleaved.

    Writes `cells`: of each `context` and `block` (entries) seconds and `over_plain`, the ratio to
    a block of one at that context.
    """
    settings = bench.settings
    out |= {"model": settings.target, "cells": []}
    out["note"] = f"slots behind the first {PREFILLED} of a context hold zeros"
    model = bench.models.get(settings.target)
    for context in settings.verify_contexts:
        if bench.is_late(out, f"context {context}"):
            continue
        bench.progress(f"verify: context {context}")
        forwards = Forwards(bench, model, context, max(settings.verify_blocks))
        arms = {str(block): forwards.of(block) for block in settings.verify_blocks}
        timed = bench.clock.interleaved(arms, settings.repeats, warm_ups=2)
        plain = timed["1"]
        for block in settings.verify_blocks:
            found: dict[str, Any] = {"context": context, "block": block}
            timing = timed[str(block)]
            if isinstance(timing, Timing):
                found |= timing.as_dict()
                if isinstance(plain, Timing):
                    found["over_plain"] = timing.seconds / plain.seconds
            else:
                found["missing"] = timing
            out["cells"].append(found)
        del forwards, arms
        bench.clock.free()
        bench.keep()
