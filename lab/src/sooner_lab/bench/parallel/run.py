"""The arms of `sooner bench parallel`, their runs and their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch

from sooner.engine.stats.run import APPROXIMATE
from sooner.methods import Method, ParallelVLM
from sooner.methods.threads import cores
from sooner.models import adapt
from sooner.tasks.clip import Clip

from ..caption import CaptionBench, opened
from ..caption_settings import LOSSY, ParallelBenchSettings
from ..goals import goal
from ..prediction import step_curve
from ..run import ArmSamples, Data, Keep, Progress, TimedRun

PLAIN, ALL_CORES = "plain", "plain-all-cores"
OURS, UNPRUNED, LITERAL = "parallel", "parallel-unpruned", "parallel-literal"
"""The last as in the paper: its pipeline, and visual tokens that compete over all frames."""
BASELINES = (
    "hf-assisted", "speculative", "speculative-auto", "onsd", "sd-tree", "specvlm",
    "sparse-to-dense",
)  # fmt: skip
"""Lossless peers of table 1. `speculative` is vanilla SD with its window of 5."""
VANILLA = {"over_speculative": "speculative", "over_speculative_auto": "speculative-auto"}
"""Vanilla speculative decoding, with the paper's window of 5 and with one that it chooses."""
RIVALS = ((PLAIN, 3.4), ("speculative", 1.3), ("speculative-auto", 1.3), ("hf-assisted", 1.6))
"""Goals: decoding speed of `parallel`, the one arm that is named in advance, over an arm's."""


def run(
    settings: ParallelBenchSettings, progress: Progress = print, keep: Keep | None = None
) -> Data:
    """Measure and return the result: `arms` and points of the `sweep`, a row each, and `goals`."""
    progress("loading models")
    with opened(settings, ParallelBench, settings.placement, settings.scenes) as bench:
        is_rendered = settings.is_rendered
        recorder = bench.recorder(
            "parallel", keep, goals, prune=settings.prune, prompt_tokens=bench.prompt_tokens(),
            frames_per_scene=settings.frames_per_scene if is_rendered else None,
            scenes=settings.scenes if is_rendered else None,
        )  # fmt: skip
        points = bench.points if "sweep" in settings.parts else {}
        names = dict.fromkeys([*bench.arms(), *points])
        unwarmed = [name for name in points if name not in (*bench.arms(), OURS, UNPRUNED)]
        measured = bench.measure(names, progress, unwarmed)
        rows = {arm["method"]: arm for arm in bench.rows(measured)}
        for arm in rows.values():
            arm |= over_vanilla(arm, rows)
        return recorder.add(
            arms=[rows[name] for name in bench.arms() if name in rows],
            sweep=[_point(rows[name]) | points[name] for name in points if name in rows],
        )


class ParallelBench(CaptionBench):
    """The arms of `bench caption`, and those of `parallel` by pruning ratio and criterion."""

    def __init__(self, *inputs: Any) -> None:
        super().__init__(*inputs)
        settings = self.settings
        if settings.is_rendered:
            self.frames = settings.scenes * settings.frames_per_scene
        ours = {"alpha": settings.prune, "criterion": ParallelVLM.criterion}
        self.points: dict[str, Data] = {
            self._name(criterion, alpha): {"alpha": alpha, "criterion": criterion}
            for alpha in settings.ratios
            for criterion in (settings.criteria if alpha else settings.criteria[:1])
        }
        self.pruned = {OURS: ours, UNPRUNED: {**ours, "alpha": 0.0}, **self.points}
        self.pruned[LITERAL] = {**ours, "criterion": "uv-prune"}

    def _name(self, criterion: str, alpha: float) -> str:
        """Return the name of a point of the sweep; without pruning all criteria are one."""
        if alpha == 0:
            return UNPRUNED
        if (criterion, alpha) == (ParallelVLM.criterion, self.settings.prune):
            return OURS
        return f"{criterion}@{alpha:g}"

    def arms(self) -> list[str]:
        """Return the arms beside the sweep, plain decoding first."""
        parts = self.settings.parts
        names = [PLAIN] + [ALL_CORES] * self.settings.all_cores
        names += [*BASELINES, OURS, UNPRUNED, LITERAL] if "methods" in parts else []
        return list(dict.fromkeys([*names, *([*LOSSY, OURS] if "lossy" in parts else [])]))

    def is_possible(self, name: str) -> bool:
        has_draft = self.pair.draft is not None
        return super().is_possible(name) and (name not in self.pruned or has_draft)

    def base(self, name: str) -> str:
        return OURS if name in self.pruned else PLAIN if name == ALL_CORES else super().base(name)

    def is_simulated(self, name: str) -> bool:
        return name in (*self.pruned, "speculative") and name != LITERAL

    def run_ours(self, name: str, index: int) -> TimedRun:
        before = torch.get_num_threads()
        torch.set_num_threads(cores() if name == ALL_CORES else before)
        try:
            return super().run_ours(name, index)
        finally:
            torch.set_num_threads(before)

    def method(self, name: str, clip: Clip) -> Method:
        if name not in self.pruned:
            return super().method(name, clip)
        draft: Any = self.pair.draft
        return ParallelVLM(
            draft.model,
            prune=self.pruned[name]["alpha"],
            min_visual=0,
            standing=draft.standing,
            criterion=self.pruned[name]["criterion"],
            schedule="paper" if name == LITERAL else "auto",
            placement=self.settings.placement,
            draft_inputs=clip.draft_inputs,
        )

    def figures(self, arm: ArmSamples, plain: ArmSamples) -> Data:
        """Return what this study adds to an arm's row."""
        name, stats = arm.arm.name, arm.stats
        pruned = self.pruned.get(name)
        forwards = [each for each in stats if each.draft_forwards]
        steps = [each.draft_forward_seconds / each.draft_forwards for each in forwards]
        figures = super().figures(arm, plain) | {
            "alpha": pruned and pruned["alpha"],
            "criterion": pruned and pruned["criterion"],
            "verdicts": sorted({parity.verdict for parity in arm.parity}),
            "first_token_ratio": first_token_ratio(arm, plain),
            "draft_step_seconds": median(steps) if steps else None,
            "target_step_seconds": step_curve(plain.stats)(1),
        }
        if name == OURS:
            figures["acceptance_ratio"] = self.acceptance_ratio(arm)
        if not any(each.num_draft_levels for each in stats):
            figures["accepted_run_length"] = None  # nothing was drafted
        ranking = sum(each.rank_seconds for each in stats)
        if ranking and pruned:
            figures["ranking_share"] = ranking / sum(each.seconds["prefill"] for each in stats)
        return figures

    def prompt_tokens(self) -> dict[str, int]:
        """Return the tokens of the first clip's prompt, and how many of them stand for pixels."""
        inputs = self.clip(PLAIN, 0).inputs
        visual = adapt(self.model).visual_tokens(inputs)
        return {"all": int(inputs["input_ids"].shape[1]), "visual": int(visual.sum())}


def first_token_ratio(arm: ArmSamples, plain: ArmSamples) -> float | None:
    """Return the median over runs of the time to the first token over plain decoding's of the same
    round."""
    ratios = [
        run.first_token_seconds / other.first_token_seconds
        for runs, others in zip(arm.samples, plain.samples, strict=True)
        for run, other in zip(runs, others, strict=True)
        if run.first_token_seconds and other.first_token_seconds
    ]
    return median(ratios) if ratios else None


def over_vanilla(arm: Data, rows: Mapping[str, Data]) -> Data:
    """Return the decoding speed of an arm over either way of vanilla speculative decoding."""
    speedup = arm.get("decode_speedup")
    vanilla = {key: rows.get(name, {}).get("decode_speedup") for key, name in VANILLA.items()}
    return {key: speedup / speed for key, speed in vanilla.items() if speedup and speed}


def _point(figures: Data) -> Data:
    """Return what the sweep has of an arm."""
    names = (
        "method", "accepted_run_length", "mean_acceptance_length", "acceptance_rate",
        "draft_step_seconds", "target_step_seconds", "decode_speedup", "simulated_speedup",
        "share_of_simulation", "parity", "first_token_ratio", "ranking_share",
    )  # fmt: skip
    point = {name: figures[name] for name in names if name in figures}
    if draft := point.get("draft_step_seconds"):
        point["speed_ratio"] = point["target_step_seconds"] / draft
    return point


def lossy_rows(arms: Sequence[Data]) -> list[Data]:
    """Return the rows of table 2: approximate arms, and ours beside them."""
    return [arm for arm in arms if arm["mode"] == APPROXIMATE or arm["method"] == OURS]


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured; they were fixed before any result."""
    arms = {arm["method"]: arm for arm in (*result["sweep"], *result["arms"])}
    ours = arms.get(OURS, {})
    rows = []
    if speed := ours.get("decode_speedup"):
        for rival, bound in RIVALS:
            if base := arms.get(rival, {}).get("decode_speedup"):
                rows.append(goal(f"{OURS} over {rival}, ×", bound, speed / base))
    if ours.get("share_of_simulation") is not None:
        reached = 100 * ours["share_of_simulation"]
        rows.append(goal(f"{OURS}, % of the simulator's", 85.0, reached))
    if ours.get("ranking_share"):
        name, reached = "ranking, % of the target's prefill", 100 * ours["ranking_share"]
        rows.append(goal(name, 1.0, reached, is_upper=True))
    if (ratio := ours.get("first_token_ratio")) is not None:
        name = "addition to the time to the first token, standing draft, %"
        rows.append(goal(name, 5.0, 100 * (ratio - 1), is_upper=True))
    return rows
