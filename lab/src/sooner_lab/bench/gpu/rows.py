"""Plain and speculative decoding of batches."""

from __future__ import annotations

from typing import Any

from sooner.methods import Speculative

from .bench import GpuBench
from .models import prompts, script, set_script
from .texts import WARM_UP, interleaved, sooner_arm


def rows(bench: GpuBench, out: dict[str, Any]) -> None:
    """Tokens a second of all rows together, by rows.

    Writes `cells`: of each `rows`, `plain` and `speculative`: `tokens_per_second`, `over_plain`,
    `over_one_row` (of the same arm) and `identical`; no speed where the text is not plain's.
    """
    settings = bench.settings
    target, draft = (bench.models.get(name) for name in (settings.target, settings.draft))
    set_script(draft, script(settings.rows_acceptance, draft.config.vocab_size, settings.seed))
    vocab, new = min(target.config.vocab_size, draft.config.vocab_size), settings.rows_tokens
    out |= {"model": settings.target, "draft": settings.draft, "cells": []}
    out |= {"acceptance": settings.rows_acceptance, "num_draft_tokens": settings.num_draft_tokens}
    arms = {
        "plain": sooner_arm(bench, target),
        "speculative": sooner_arm(bench, target, Speculative(draft, settings.num_draft_tokens)),
    }
    first: dict[str, float] = {}
    for count in settings.rows:
        if bench.is_late(out, f"rows {count}"):
            continue
        bench.progress(f"rows: {count}")
        ids = prompts(count, settings.rows_context, new, vocab, bench.device, settings.seed)
        texts = interleaved(bench, arms, ids, new, settings.text_runs, WARM_UP)
        cell: dict[str, Any] = {"rows": count}
        for name, one in texts.items():
            if one.error is not None:
                cell[name] = {"missing": one.error}
                continue
            cell[name] = {"identical": one.tokens == texts["plain"].tokens}
            if not cell[name]["identical"]:
                continue
            rate, plain = one.rate, texts["plain"].rate
            if count == 1:
                first[name] = rate.seconds
            cell[name] |= {
                "tokens_per_second": rate.seconds,
                "interval": list(rate.interval),
                "samples": rate.samples,
                "over_plain": rate.seconds / plain.seconds,
                "over_one_row": rate.seconds / first[name] if name in first else None,
            }
        out["cells"].append(cell)
        bench.clock.free()
        bench.keep()
