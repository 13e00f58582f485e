"""Speculative and parallel decoding whose acceptance is set, against theory from measured steps."""

from __future__ import annotations

from typing import Any

from sooner.methods import ParallelVLM, Speculative

from ...theory import renewal
from ...theory.speedup import expected_accepted
from .bench import GpuBench
from .forwards import Forwards
from .models import prompts, script, set_script
from .texts import WARM_UP, ArmTexts, Decode, interleaved, sooner_arm
from .timing import Timing


def drafts(bench: GpuBench, out: dict[str, Any]) -> None:
    """Tokens a second by acceptance, with a draft of the real size.

    Writes `steps`, seconds of a plain step, of a verification and of a draft step; `plain`, the
    arm without drafts; and `rows`: of each `acceptance` and `method` what `row` returns.
    """
    settings = bench.settings
    drafted = settings.num_draft_tokens
    target, draft = (bench.models.get(name) for name in (settings.target, settings.draft))
    vocab = min(target.config.vocab_size, draft.config.vocab_size)
    new = settings.draft_tokens
    ids = prompts(1, settings.draft_context, new, vocab, bench.device, settings.seed)
    out |= {"model": settings.target, "draft": settings.draft, "num_draft_tokens": drafted}
    out |= {"steps": steps(bench, target, draft), "rows": []}
    plain: Decode = sooner_arm(bench, target)
    for acceptance in settings.acceptance:
        if bench.is_late(out, f"acceptance {acceptance}"):
            continue
        bench.progress(f"drafts: acceptance {acceptance}")
        set_script(draft, script(acceptance, draft.config.vocab_size, settings.seed))
        beside = ParallelVLM(
            draft, prune=0.0, placement="auto" if bench.clock.is_cuda else "thread"
        )
        arms = {
            "plain": plain,
            "speculative": sooner_arm(bench, target, Speculative(draft, drafted)),
            "parallel": sooner_arm(bench, target, beside),
        }
        texts = interleaved(bench, arms, ids, new, settings.text_runs, WARM_UP)
        own = texts["plain"]
        for name in ("speculative", "parallel"):
            found = row(texts[name], own, acceptance, out["steps"], drafted)
            out["rows"].append({"acceptance": acceptance, "method": name, **found})
        if own.error is None:
            out["plain"] = {"tokens_per_second": own.rate.seconds}
        bench.keep()


def steps(bench: GpuBench, target: Any, draft: Any) -> dict[str, Any]:
    """Seconds of the forwards that theory is made of, in the middle of the text, interleaved."""
    settings = bench.settings
    context = settings.draft_context + settings.draft_tokens // 2
    block = 1 + settings.num_draft_tokens
    verifying = Forwards(bench, target, context, block)
    drafting = Forwards(bench, draft, context, block)
    arms = {"plain": verifying.of(1), "verify": verifying.of(block), "draft": drafting.of(1)}
    timed = bench.clock.interleaved(arms, settings.repeats, warm_ups=2)
    return {
        name: one.as_dict() if isinstance(one, Timing) else {"missing": one}
        for name, one in timed.items()
    }


def row(
    texts: ArmTexts, plain: ArmTexts, acceptance: float, steps: dict[str, Any], drafted: int
) -> dict[str, Any]:
    """The figures of a method at one acceptance; none of speed if the text is not plain's.

    Returns:
        `identical`; `tokens_per_second` (a sample a run), `over_plain`, `tokens_a_round` as they
        came out and `expected_tokens_a_round` of the script. For `speculative` besides
        `theory_tokens_per_second`: the tokens a round that came out over a verification and the
        draft's steps as measured, and `share_of_theory`; `share_of_expected` is that of the
        expected tokens. For `parallel` the theory is that of lock-step rounds whose draft has a
        device of its own (`renewal.parallel_time`), at the best draft length.
    """
    if texts.error is not None or plain.error is not None:
        return {"missing": texts.error or f"plain: {plain.error}"}
    found: dict[str, Any] = {"identical": texts.tokens == plain.tokens}
    if not found["identical"]:
        return found
    rate = texts.rate
    expected = 1 + expected_accepted(acceptance, drafted)
    found |= {
        "tokens_per_second": rate.seconds,
        "interval": list(rate.interval),
        "samples": rate.samples,
        "over_plain": rate.seconds / plain.rate.seconds,
        "tokens_a_round": texts.tokens_a_round,
        "notes": texts.runs[0].stats.notes[:4],
    }
    if any("missing" in one for one in steps.values()):
        return found
    seconds = {name: one["seconds"] for name, one in steps.items()}
    if texts.name == "speculative":
        length = drafted * seconds["draft"] + seconds["verify"]
        theory, wanted = texts.tokens_a_round / length, expected / length
        found["expected_tokens_a_round"] = expected
    else:
        ratio = seconds["plain"] / seconds["draft"]
        best = renewal.best_draft_length(ratio, acceptance)
        each = renewal.parallel_time(ratio, best, acceptance) * seconds["draft"]
        theory = wanted = 1 / each
    return {
        **found,
        "theory_tokens_per_second": theory,
        "share_of_theory": rate.seconds / theory,
        "share_of_expected": rate.seconds / wanted,
    }
