"""25k visual tokens: the prompt of ParallelVLM's tables, drafted for with and without pruning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sooner
from sooner.methods.sd_tree import STATIC_TREE

from ...rivals.specvlm import SpecVLM
from .bench import GpuBench
from .models import VIDEO, script, set_script, video_prompt
from .texts import ArmTexts, interleaved, sooner_arm

PRUNE = 0.9
"""Share of the visual tokens that a pruned draft does without, as in the paper."""

PHASES = ("vision", "prefill", "draft_prefill")


def video(bench: GpuBench, out: dict[str, Any]) -> None:
    """Rates behind one long video, and what its prefill takes.

    Writes `visual_tokens`, and `rows`: of each `arm` the figures of `ArmTexts` against plain
    decoding, and `phases`: seconds of the last call by phase before the first round.
    """
    settings = bench.settings
    bench.models.drop()
    target, draft = (bench.models.get(name + VIDEO) for name in (settings.target, settings.draft))
    vocab = draft.config.get_text_config().vocab_size
    set_script(draft, script(settings.acceptance[0], vocab, settings.seed))
    inputs = video_prompt(target, settings.video_grid, settings.seed)
    draft_inputs = video_prompt(
        draft, settings.video_grid, settings.seed
    )  # its own ids of placeholders
    placement: Any = "auto" if bench.clock.is_cuda else "thread"
    length = settings.num_draft_tokens
    made: dict[str, Callable[[], Any]] = {
        "plain": sooner.Autoregressive,
        "speculative": lambda: sooner.Speculative(draft, length, draft_inputs=draft_inputs),
        "parallel": lambda: sooner.ParallelVLM(
            draft, PRUNE, 0, placement=placement, draft_inputs=draft_inputs
        ),
        "specvlm": lambda: SpecVLM(draft, STATIC_TREE, draft_inputs=draft_inputs, prune=PRUNE),
    }
    out |= {"model": settings.target, "draft": settings.draft, "rows": []}
    out["acceptance"] = settings.acceptance[0]
    out["visual_tokens"] = int(inputs["mm_token_type_ids"].sum()) // 2
    arms = {name: sooner_arm(bench, target, make) for name, make in made.items()}

    def write(texts: Mapping[str, ArmTexts]) -> None:
        out["rows"] = []
        for name, text in texts.items():
            row = {"arm": name, **text.figures(texts["plain"])}
            if text.runs:
                seconds = text.runs[-1].stats.seconds
                row["phases"] = {phase: seconds[phase] for phase in PHASES if phase in seconds}
            out["rows"].append(row)

    interleaved(bench, out, arms, inputs, settings.video_tokens, write)
    bench.models.drop()
