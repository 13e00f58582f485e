"""Every kind of draft: chains of set acceptance against theory, trees and heads, drawn tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch

import sooner
from sooner.methods.sd_tree import STATIC_TREE

from ...theory import renewal
from .bench import GpuBench
from .models import draft_head, prompts, script, set_script
from .texts import ArmTexts, Decode, interleaved, sooner_arm
from .verify import WARM_UPS, steps_of

SAMPLED = {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "seed": 7}
"""Greedy text has nearly all of the probability, so that drawn text is the same."""

UNTRAINED = ("eagle", "eagle3", "dflash", "ddtree", "prompt-lookup")
"""Arms whose drafts are right by chance alone: what counts is `break_even`."""


def methods(bench: GpuBench, out: dict[str, Any]) -> None:
    """Rounds and rates of every kind of draft.

    Writes `steps`, seconds of a plain step, of a verification and of a draft step, all of them
    graphs; and `rows`: of each `acceptance` (of the draft model) and `arm` the figures of
    `ArmTexts` against plain decoding, and `theory` where there is one. The first acceptance has
    all arms, the others chains alone.
    """
    settings = bench.settings
    target, draft = (bench.models.get(name) for name in (settings.target, settings.draft))
    vocab, new = min(target.config.vocab_size, draft.config.vocab_size), settings.draft_tokens
    inputs = prompts(1, settings.draft_context, new, vocab, bench.device, settings.seed)
    out |= {"model": settings.target, "draft": settings.draft}
    out["num_draft_tokens"] = settings.num_draft_tokens
    out |= {"steps": steps(bench, target, draft), "rows": []}
    for number, acceptance in enumerate(settings.acceptance):
        if bench.is_late(out, f"acceptance {acceptance}"):
            continue
        bench.progress(f"methods: acceptance {acceptance}")
        set_script(draft, script(acceptance, draft.config.vocab_size, settings.seed))
        write = partial(write_rows, out, acceptance, list(out["rows"]))
        interleaved(bench, out, arms(bench, target, draft, every=not number), inputs, new, write)


def write_rows(
    out: dict[str, Any],
    acceptance: float,
    earlier: list[dict[str, Any]],
    texts: Mapping[str, ArmTexts],
) -> None:
    """The figures of every arm against plain decoding, behind rows of another acceptance."""
    out["rows"] = [*earlier]
    for name, text in texts.items():
        if earlier and name == "plain":
            continue
        figures = text.figures(texts["plain sampled" if name.endswith(" sampled") else "plain"])
        figures |= theory(name, figures, acceptance, out["steps"], out["num_draft_tokens"])
        set_by_script = name.split()[0] not in (*UNTRAINED, "plain")
        about = {"arm": name, "acceptance": acceptance if set_by_script else None}
        out["rows"].append({**about, **figures})


def arms(bench: GpuBench, target: Any, draft: Any, every: bool) -> dict[str, Decode]:
    """Plain decoding, chains of the draft, and if asked for `every` other kind of draft."""
    settings, length = bench.settings, bench.settings.num_draft_tokens
    placement: Any = "auto" if bench.clock.is_cuda else "thread"
    made: dict[str, Callable[[], Any]] = {
        "plain": sooner.Autoregressive,
        "speculative": lambda: sooner.Speculative(draft, length),
        "parallel": lambda: sooner.ParallelVLM(draft, prune=0.0, placement=placement),
    }
    head = cache(lambda kind: draft_head(kind, target))
    extra: dict[str, Callable[[], Any]] = {
        "speculative-auto": lambda: sooner.Speculative(draft),
        "sd-tree": lambda: sooner.SDTree(draft, STATIC_TREE),
        "eagle": lambda: sooner.Eagle(head("eagle"), nodes=settings.nodes),
        "eagle3": lambda: sooner.Eagle(head("eagle3"), nodes=settings.nodes),
        "dflash": lambda: sooner.DFlash(head("dflash"), 7),
        "ddtree": lambda: sooner.DDTree(head("dflash"), nodes=settings.nodes),
        "prompt-lookup": sooner.PromptLookup,
    }
    if not every:
        return {name: sooner_arm(bench, target, make) for name, make in made.items()}
    made |= extra
    decodes = {name: sooner_arm(bench, target, make) for name, make in made.items()}
    for name in ("plain", "speculative", "sd-tree", "eagle3"):
        decodes[f"{name} sampled"] = sooner_arm(bench, target, made[name], **SAMPLED)
    return decodes


def steps(bench: GpuBench, target: Any, draft: Any) -> dict[str, Any]:
    """Seconds of the steps that theory is made of, as graphs, in the middle of the text."""
    settings = bench.settings
    context = settings.draft_context + settings.draft_tokens // 2
    block = 1 + settings.num_draft_tokens
    ours = steps_of(bench, target, context, (1, block))
    draft_steps = steps_of(bench, draft, context, (1,))
    named = {
        "plain": ours["graph chain 1"],
        "verify": ours[f"graph chain {block}"],
        "draft": draft_steps["graph chain 1"],
    }
    with torch.inference_mode():
        return bench.clock.interleaved(named, settings.repeats, WARM_UPS)


def theory(
    arm: str, figures: dict[str, Any], acceptance: float, steps: dict[str, Any], length: int
) -> dict[str, float]:
    """What measured steps allow, and the share of it that an arm reaches; empty without theory.

    Returns:
        Of `speculative` `theory_tokens_per_second`: the tokens a round that came out, over a
        verification and the draft's steps; and `share_of_theory`. `share_of_expected` is that of
        the tokens that the script lets expect. Of `parallel` theory is that of lock-step rounds
        whose draft has a device of its own (`renewal.parallel_time`), at the best draft length.
    """
    is_chain = arm in ("speculative", "speculative sampled")
    if "tokens_per_second" not in figures or not (is_chain or arm == "parallel"):
        return {}
    if any("missing" in step for step in steps.values()):
        return {}
    seconds = {name: step["seconds"] for name, step in steps.items()}
    if is_chain:
        each = length * seconds["draft"] + seconds["verify"]
        best = figures["tokens_a_round"] / each
        ratio = seconds["verify"] / seconds["draft"]
        expected = 1 / (renewal.vanilla_time(ratio, length, acceptance) * seconds["draft"])
    else:
        ratio = seconds["plain"] / seconds["draft"]
        chain = renewal.best_draft_length(ratio, acceptance)
        best = 1 / (renewal.parallel_time(ratio, chain, acceptance) * seconds["draft"])
        expected = best
    rate = figures["tokens_per_second"]
    return {
        "theory_tokens_per_second": best,
        "share_of_theory": rate / best,
        "share_of_expected": rate / expected,
    }
