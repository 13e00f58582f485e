"""Decoding speed on the world of marks: drafting beside the target, and by turns.

Tables 3 and 5 of ParallelVLM: pruning makes the draft's step shorter, and so its speed ratio c
larger. Its baseline here is the same pruned draft by turns with the target at the best of its
windows, which is chosen on other clips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sooner.generation import generate
from sooner.methods import (
    Autoregressive,
    Method,
    OnSD,
    ParallelVLM,
    SDTree,
    SparseToDense,
    SpecVLM,
    StandingDraft,
)
from sooner.methods.tree_draft import STATIC_TREE
from sooner.models import adapt
from sooner.parity import compare, reference_run

from ...worlds.marks import architecture, draw
from ...worlds.video.evaluate import build_inputs
from ..intervals import quotient
from ..parallel.untimed import Heard
from ..prediction import predicted_speedup, step_curve
from ..protocol import TimedRun
from . import reading
from . import settings as fixed
from .by_turns import PrunedSpeculative
from .reading import MarkReader, TokenChoice, clips

Figures = dict[str, Any]
PLAIN = "plain"


@dataclass(frozen=True)
class SpeedArm:
    """A way to decode.

    Attributes:
        name: `plain`, `by-turns`, `parallel`, or a baseline of the paper: `onsd`, `sd-tree`,
            `specvlm`, `sparse-to-dense` (whose draft is the target).
        is_self: whether the target drafts for itself.
        alpha: share of the visual tokens that the draft does without.
        window: draft tokens of a round by turns; `None` is the number that measurably pays.
    """

    name: str
    alpha: float = 0.0
    window: int | None = None
    is_self: bool = False

    @property
    def label(self) -> str:
        window = f", window {self.window or 'auto'}" if self.name == "by-turns" else ""
        own = ", its own draft" if self.is_self else ""
        return self.name if self.name == PLAIN else f"{self.name}{own}, α {self.alpha:g}{window}"


@dataclass(frozen=True)
class Batch:
    """A batch of clips, ready to decode.

    Attributes:
        inputs: of all its clips.
        kept: by alpha, of each clip the visual tokens that the draft sees; `None` is all.
        reference: ids of each clip by HF's own incremental decoding, and their scores.
    """

    inputs: Any
    kept: dict[float, list[list[int]] | None]
    reference: tuple[list[list[int]], list[list[Any]]] | None


class SpeedBench:
    """Times arms on clips of the world.

    Args:
        reader: target and drafts.
        draft: name of the draft's checkpoint.
        temperature: 0 is greedy.
    """

    def __init__(self, reader: MarkReader, draft: str, temperature: float = 0.0) -> None:
        self.target, self.reader = reader.target, reader
        self.draft = reader.drafts[draft]
        self.temperature = temperature
        self.standing: dict[bool, StandingDraft] = {}

    def batches(
        self, count: int, rows: int, seed: int, alphas: Sequence[float], has_reference: bool
    ) -> Iterator[Batch]:
        """`count` batches of `rows` clips."""
        found = clips(count * rows, seed, fixed.CLEAR)
        for _ in range(count):
            films = [next(found) for _ in range(rows)]
            shown = [draw.render(clip) for clip in films]
            inputs = build_inputs(
                self.reader.processor, shown, films[0].frames, architecture.PROMPT
            )
            kept: dict[float, list[list[int]] | None] = {}
            heard: list[dict[bool, Heard]] = [{} for _ in films]
            for alpha in alphas:
                kept[alpha] = None
                if alpha:
                    kept[alpha] = [
                        self._kept(alpha, film, clip, had)
                        for film, clip, had in zip(shown, films, heard, strict=True)
                    ]
            reference = None
            if has_reference:
                reference = reference_run(self.target, inputs, max_new_tokens=reading.MOST)
            yield Batch(inputs, kept, reference)

    def _kept(self, alpha: float, film: Any, clip: Any, heard: dict[bool, Heard]) -> list[int]:
        inputs = build_inputs(self.reader.processor, [film], clip.frames, architecture.PROMPT)
        visual = int(adapt(self.target).visual_tokens(inputs)[0].sum())
        choice = TokenChoice(fixed.SPEED_CRITERION, alpha)
        kept = self.reader.kept(choice, clip, visual, heard, self.draft, inputs, 0)
        assert kept is not None
        return kept

    def method(self, arm: SpeedArm, batch: Batch) -> Method:
        """The arm's method; those that draft beside the target share a process for each draft."""
        if arm.name == PLAIN:
            return Autoregressive()
        if arm.name == "by-turns":
            window: Any = "auto" if arm.window is None else arm.window
            return PrunedSpeculative(self.draft, window, kept=batch.kept[arm.alpha])
        draft = self.target if arm.is_self else self.draft
        if arm.name == "onsd":
            return OnSD(draft, num_draft_tokens=fixed.BASELINE_TOKENS)
        if arm.name == "sd-tree":
            return SDTree(draft, STATIC_TREE)
        if arm.name == "specvlm":
            return SpecVLM(draft, STATIC_TREE, prune=arm.alpha)
        if arm.name == "sparse-to-dense":
            return SparseToDense(fixed.SPARSE_TOKENS, prune=arm.alpha)
        if arm.is_self not in self.standing:
            self.standing[arm.is_self] = StandingDraft(draft)
        return ParallelVLM(
            draft,
            prune=arm.alpha,
            least=0,
            criterion=fixed.SPEED_CRITERION,
            placement="process",
            standing=self.standing[arm.is_self],
        )

    def time(self, arm: SpeedArm, batch: Batch, seed: int) -> TimedRun:
        """One run."""
        sampling: dict[str, Any] = {"do_sample": False}
        if self.temperature:
            sampling = {"do_sample": True, "temperature": self.temperature, "top_k": 0}
        made = generate(
            self.target,
            batch.inputs,
            self.method(arm, batch),
            seed=seed,
            max_new_tokens=reading.MOST,
            **sampling,
        )
        stats = made.stats
        return TimedRun(made.tokens, stats.decode_seconds, 0.0, stats.decode_tokens, stats)

    def close(self) -> None:
        for standing in self.standing.values():
            standing.close()


@dataclass(frozen=True)
class SpeedRun:
    """What is timed together.

    Attributes:
        rows: clips of a batch.
        temperature: 0 is greedy.
        count: batches, and `repeats`: runs of each arm on each.
        seed: of the clips.
    """

    rows: int
    temperature: float
    count: int
    repeats: int
    seed: int

    def measure(
        self,
        reader: MarkReader,
        draft: str,
        arms: Sequence[SpeedArm],
        progress: Callable[[str], None],
    ) -> list[Figures]:
        """Time all arms in turns, batch by batch.

        Returns:
            of each arm: `tokens_per_second`; `over_plain` with its interval over batches; draft
            and target step, M of its rounds, what the simulator makes of these; `parity` of greedy
            ids against HF's own.
        """
        bench = SpeedBench(reader, draft, self.temperature)
        alphas = sorted({arm.alpha for arm in arms})
        runs: dict[SpeedArm, list[list[TimedRun]]] = {arm: [] for arm in arms}
        verdicts: dict[SpeedArm, list[str]] = {arm: [] for arm in arms}
        is_greedy = not self.temperature
        batches = bench.batches(self.count, self.rows, self.seed, alphas, is_greedy)
        try:
            for index, batch in enumerate(batches):
                for arm in arms:
                    runs[arm].append([])
                if not index:  # first forwards pay for allocations and kernel choices
                    for arm in arms:
                        bench.time(arm, batch, self.seed)
                for repeat in range(self.repeats):
                    for arm in arms:
                        run = bench.time(arm, batch, self.seed + index)
                        runs[arm][-1].append(run)
                        if is_greedy and not repeat:
                            verdicts[arm] += _verdicts(batch, run)
                progress(f"{self.rows} row(s): batch {index + 1} of {self.count}")
        finally:
            bench.close()
        plain = next((arm for arm in arms if arm.name == PLAIN), arms[0])
        return [
            {
                "arm": arm.name,
                "label": arm.label,
                "alpha": arm.alpha,
                "window": arm.window,
                "is_self": arm.is_self,
                **_figures(arm, runs[arm], runs[plain], self.seed),
                "parity": _worst(verdicts[arm]) if is_greedy else None,
                "totals": _totals(runs[arm]),
            }
            for arm in arms
        ]


def best_window(arms: Sequence[Figures], alpha: float) -> int:
    """The window with which drafting by turns was fastest."""
    tried = [arm for arm in arms if arm["arm"] == "by-turns" and arm["alpha"] == alpha]
    fastest = max(tried, key=lambda arm: arm["tokens_per_second"])
    return int(fastest["window"])


def over(one: Figures, other: Figures, seed: int) -> Figures:
    """One arm's decoding speed over another's, of the same batches, with its interval."""
    return quotient(one["totals"], other["totals"], seed)


def _verdicts(batch: Batch, run: TimedRun) -> list[str]:
    assert batch.reference is not None
    rows = zip(*batch.reference, run.tokens, strict=True)
    return [compare(tokens, said, scores).verdict for tokens, scores, said in rows]


def _worst(verdicts: Sequence[str]) -> str:
    return max(verdicts, key=("identical", "tie", "bug").index)


def _totals(runs: Sequence[Sequence[TimedRun]]) -> tuple[list[float], list[float]]:
    """Of each batch the tokens that were decoded, and the median of the seconds they took."""
    return (
        [float(median(run.decode_tokens for run in each)) for each in runs],
        [median(run.decode_seconds for run in each) for each in runs],
    )


def _figures(
    arm: SpeedArm, runs: list[list[TimedRun]], plain: list[list[TimedRun]], seed: int
) -> Figures:
    tokens, seconds = _totals(runs)
    stats = [run.stats for each in runs for run in each if run.stats is not None]
    of_plain = [run.stats for each in plain for run in each if run.stats is not None]
    found: Figures = {"tokens_per_second": sum(tokens) / sum(seconds)}
    found["over_plain"] = quotient((tokens, seconds), _totals(plain), seed)
    found["mean_acceptance_length"] = _mean([one.mean_acceptance_length for one in stats])
    forwards = sum(one.draft_forwards for one in stats)
    if not forwards:
        return found
    draft_step = median(one for each in stats for one in each.draft_seconds)
    target_step = step_curve(of_plain)(1)
    found |= {
        "draft_step_seconds": draft_step,
        "target_step_seconds": target_step,
        "speed_ratio": target_step / draft_step,
        "accepted_run_length": _mean([run for each in stats for run in each.runs]),
    }
    if arm.name not in ("by-turns", "parallel") or (arm.name == "by-turns" and not arm.window):
        return found  # what the simulator knows nothing of
    predicted = predicted_speedup(stats, of_plain, arm.window)
    if predicted is not None:
        found["simulated_speedup"] = predicted
        found["share_of_simulation"] = found["over_plain"]["value"] / predicted
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
