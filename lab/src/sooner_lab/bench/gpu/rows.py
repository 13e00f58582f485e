"""Plain and speculative decoding of batches."""

from __future__ import annotations

from typing import Any

import sooner

from .bench import GpuBench
from .models import prompts, script, set_script
from .texts import interleaved, sooner_arm


def rows(bench: GpuBench, out: dict[str, Any]) -> None:
    """Tokens a second of all rows together, by rows.

    Writes `cells`: of each `rows` and `arm` the figures of `ArmTexts` against plain decoding of as
    many rows, and `over_one_row`, of the same arm.
    """
    settings = bench.settings
    target, draft = (bench.models.get(name) for name in (settings.target, settings.draft))
    set_script(draft, script(settings.rows_acceptance, draft.config.vocab_size, settings.seed))
    vocab, new = min(target.config.vocab_size, draft.config.vocab_size), settings.rows_tokens
    out |= {"model": settings.target, "draft": settings.draft, "cells": []}
    out |= {"acceptance": settings.rows_acceptance, "num_draft_tokens": settings.num_draft_tokens}
    fixed, measured = (
        sooner.Speculative(draft, settings.num_draft_tokens),
        sooner.Speculative(draft),
    )
    arms = {
        "plain": sooner_arm(bench, target),
        "speculative": sooner_arm(bench, target, lambda: fixed),
        "speculative-auto": sooner_arm(bench, target, lambda: measured),
    }
    single: dict[str, float] = {}
    for count in settings.rows:
        if bench.is_late(out, f"rows {count}"):
            continue
        bench.progress(f"rows: {count}")
        inputs = prompts(count, settings.rows_context, new, vocab, bench.device, settings.seed)
        texts = interleaved(bench, arms, inputs, new)
        for name, one in texts.items():
            cell = {"rows": count, "arm": name, **one.figures(texts["plain"])}
            if rate := cell.get("tokens_per_second"):
                if count == 1:
                    single[name] = rate
                cell["over_one_row"] = rate / single[name] if name in single else None
            out["cells"].append(cell)
        bench.clock.free()
        bench.keep()
