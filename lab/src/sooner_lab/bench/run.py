"""The harness of every bench: arms in turns, warm-up, parity gate, medians, intervals.

All arms run in one process on the same weights, dtype, threads and prompts. Each repetition goes
through every arm before the next begins (ABAB), so drift of a shared machine hits all alike. A
bench hands its parts to a `Recorder`, which writes the JSON after each of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from sooner.engine.stats.run import EXACT, Stats
from sooner.errors import SoonerError
from sooner.parity import Parity, compare

from ..provenance import provenance

Data = dict[str, Any]
Progress = Callable[[str], None]
Keep = Callable[[Data], None]
"""Writes a result as far as it is."""

RESAMPLES = 2000
MIN_SECONDS = 1e-12
"""Totals below count as this much, where a total that is divided by could be 0."""


@dataclass(frozen=True)
class TimedRun:
    """One timed run of one arm on one input.

    Attributes:
        tokens: new token ids of each row.
        decode_seconds: from the first token to the last.
        e2e_seconds: from the file to the finished text.
        decode_tokens: tokens that `decode_seconds` produced.
        stats: the engine's own counts; `None` for other libraries' arms.
        first_token_seconds: from the prepared inputs to the first token, where it was noted.
        rounds: the target's forwards behind the first, where other libraries tell them.
    """

    tokens: list[list[int]]
    decode_seconds: float
    e2e_seconds: float
    decode_tokens: int
    stats: Stats | None = None
    first_token_seconds: float | None = None
    rounds: int | None = None


@dataclass(frozen=True)
class Arm:
    """One contender: a name, its mode, and a function that runs it on input number `index`.

    `warm_up` is called before; by default the first input is run once.
    """

    name: str
    run: Callable[[int], TimedRun]
    mode: str = EXACT
    warm_up: Callable[[], object] | None = None


def no_warm_up() -> None:
    """Do nothing: the arm warms up by itself, or others warm it up."""


@dataclass
class ArmSamples:
    """All samples of one arm, `samples[input][repetition]`, and its parity on each input."""

    arm: Arm
    samples: list[list[TimedRun]] = field(default_factory=list)
    parity: list[Parity] = field(default_factory=list)

    @property
    def is_red(self) -> bool:
        """An exact arm that differs from the reference by more than a tie."""
        return self.arm.mode == EXACT and any(not parity.ok for parity in self.parity)

    @property
    def decode_seconds(self) -> float:
        """Sum over inputs of the median over repetitions."""
        return sum(median(sample.decode_seconds for sample in runs) for runs in self.samples)

    @property
    def e2e_seconds(self) -> float:
        return sum(median(sample.e2e_seconds for sample in runs) for runs in self.samples)

    @property
    def tokens(self) -> int:
        return sum(sum(map(len, runs[0].tokens)) for runs in self.samples)

    @property
    def decode_tokens(self) -> int:
        return sum(runs[0].decode_tokens for runs in self.samples)

    @property
    def decode_speed(self) -> float:
        """Tokens a second."""
        return self.decode_tokens / max(self.decode_seconds, MIN_SECONDS)

    @property
    def stats(self) -> list[Stats]:
        return [
            sample.stats for runs in self.samples for sample in runs if sample.stats is not None
        ]


def measure(
    arms: Sequence[Arm], inputs: int, repeats: int, progress: Progress = lambda _: None
) -> list[ArmSamples]:
    """Run every arm on every input `repeats` times after one warm-up that is thrown away.

    Each turn begins with another arm, so that none always runs behind the same one.
    """
    measured = [ArmSamples(arm, [[] for _ in range(inputs)]) for arm in arms]
    for arm in arms:
        progress(f"warm-up: {arm.name}")
        _ = arm.run(0) if arm.warm_up is None else arm.warm_up()
    for index in range(inputs):
        for repeat in range(repeats):
            first = (index * repeats + repeat) % len(measured)
            for each in (*measured[first:], *measured[:first]):
                progress(f"input {index + 1}/{inputs}, {repeat + 1}/{repeats}: {each.arm.name}")
                each.samples[index].append(each.arm.run(index))
    return measured


def time_in_turns(
    works: Mapping[str, Callable[[], Any]],
    repeats: int,
    device: torch.device,
    progress: Progress = lambda _: None,
) -> dict[str, list[float]]:
    """Return seconds of each work, all in turns, the device synchronised before and after.

    The first turn warms up and is thrown away.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            progress(f"{turn}/{repeats}: {name}")
            _synchronise(device)
            start = time.perf_counter()
            work()
            _synchronise(device)
            if turn:
                times[name].append(time.perf_counter() - start)
    return times


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def judge(
    measured: Sequence[ArmSamples], reference: Callable[[int], tuple[list[int], list[Any]]]
) -> None:
    """Compare the tokens of every run with those of the reference, and note the parity.

    Args:
        measured: runs of one row.
        reference: makes the tokens of an input, and the scores of each.
    """
    for index in range(len(measured[0].samples)):
        tokens, scores = reference(index)
        for arm in measured:
            arm.parity += [
                compare(tokens, sample.tokens[0], scores) for sample in arm.samples[index]
            ]


def row(arm: ArmSamples, plain: ArmSamples) -> Data:
    """The figures of one arm against the plain arm; speeds are left out where parity is red."""
    result: Data = {
        "method": arm.arm.name,
        "mode": arm.arm.mode,
        "tokens": arm.tokens,
        "parity": verdict_of(arm.parity) if arm.arm.mode == EXACT else None,
        "divergences": [parity.as_dict() for parity in arm.parity if parity.divergence is not None],
    }
    if not arm.is_red:
        result |= {
            "decode_seconds": arm.decode_seconds,
            "e2e_seconds": arm.e2e_seconds,
            "tokens_per_second": arm.decode_speed,
        }
        if plain.decode_speed:
            result["decode_speedup"] = arm.decode_speed / plain.decode_speed
        if arm.tokens == plain.tokens:  # a lossy text that ends early is no faster for it
            result["e2e_speedup"] = plain.e2e_seconds / arm.e2e_seconds
    if arm.stats:
        result |= engine_figures(arm, plain)
    return result


def verdict_of(parity: Sequence[Parity]) -> str | None:
    """The worst verdict over the inputs."""
    order = ("bug", "tie", "identical")
    verdicts = {entry.verdict for entry in parity}
    return next((verdict for verdict in order if verdict in verdicts), None)


def engine_figures(arm: ArmSamples, plain: ArmSamples) -> Data:
    """Acceptance, theory and overhead, from the engine's own counts."""
    stats = arm.stats
    steps = sum(each.num_spec_steps for each in stats)
    accepted = sum(each.num_accepted_draft_tokens for each in stats)
    levels = sum(each.num_draft_levels for each in stats)
    histogram: Counter[int] = Counter()
    for each in stats:
        histogram.update(each.acceptance_histogram)
    runs = [run for each in stats for run in each.runs]
    theory = theory_speedup(stats, plain.stats)
    figures = {
        "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
        "acceptance_rate": accepted / levels if levels else None,
        "acceptance_histogram": dict(sorted(histogram.items())),
        "accepted_run_length": sum(runs) / len(runs) if runs else None,
        "nfe": sum(each.nfe for each in stats),
        "seconds": _phases(stats),
        "overhead_share": _overhead(stats),
        "theory_speedup": theory,
        "notes": sorted({note for each in stats for note in each.notes})[:8],
    }
    if theory and not arm.is_red:
        figures["share_of_theory"] = arm.decode_speed / plain.decode_speed / theory
    return figures


def theory_speedup(stats: Sequence[Stats], plain: Sequence[Stats]) -> float | None:
    """Speed-up that the arm's own acceptance and step times allow, with nothing lost between.

    The tokens it decoded, each at the price of a plain step's forward, over the sum of its target
    forwards and draft forwards, all at the median of their kind.
    """
    step = _median_of(plain, 1)
    if step is None:
        return None
    blocks: dict[int, list[float]] = {}
    for each in stats:
        for block, times in each.verify_seconds.items():
            blocks.setdefault(block, []).extend(times)
    spent = sum(len(times) * median(times) for times in blocks.values())
    visible = [each for each in stats if not each.draft_is_hidden]
    drafts = [seconds for each in visible for seconds in each.draft_seconds]
    forwards = sum(each.draft_forwards for each in visible)
    if drafts:
        spent += forwards * median(drafts)
    tokens = sum(each.decode_tokens for each in stats) / max(stats[0].rows, 1)
    return tokens * step / spent if spent else None


def _median_of(stats: Sequence[Stats], block: int) -> float | None:
    times = [seconds for each in stats for seconds in each.verify_seconds.get(block, [])]
    return median(times) if times else None


def _phases(stats: Sequence[Stats]) -> dict[str, float]:
    """Mean seconds of each phase a run."""
    return {
        name: sum(each.seconds[name] for each in stats) / len(stats) for name in stats[0].seconds
    }


def _overhead(stats: Sequence[Stats]) -> float:
    """Share of decoding spent outside target and draft forwards."""
    forwards = sum(
        sum(sum(times) for times in each.verify_seconds.values())
        + (0.0 if each.draft_is_hidden else each.draft_forward_seconds)
        for each in stats
    )
    total = sum(each.decode_seconds for each in stats)
    return 1 - forwards / total if total else 0.0


def quotient(
    rate: tuple[Sequence[float], Sequence[float]],
    base: tuple[Sequence[float], Sequence[float]],
    seed: int,
) -> Data:
    """Divide one rate by another of the same inputs, with the 95 % interval of a paired bootstrap.

    Args:
        rate, base: for each input what is counted and by what; a rate is the total of the first
            over the total of the second.
        seed: of the inputs that are drawn; an input is drawn whole.

    Returns:
        `value` and `interval`, `None` where there is nothing to divide by.
    """
    many = [np.array(each, float) for each in (*rate, *base)]  # four of [inputs]
    if not len(many[0]) or min(many[1].sum(), many[2].sum()) <= 0:
        return {"value": None, "interval": None}
    picks = np.random.default_rng(seed).integers(len(many[0]), size=(RESAMPLES, len(many[0])))
    spread = _quotient(*(each[picks].sum(1) for each in many))  # [resamples]
    low, high = np.percentile(spread, (2.5, 97.5))
    value = float(_quotient(*(each.sum(keepdims=True) for each in many))[0])
    return {"value": value, "interval": [float(low), float(high)]}


def _quotient(
    above: np.ndarray, below: np.ndarray, base_above: np.ndarray, base_below: np.ndarray
) -> np.ndarray:
    return (
        above * base_below / (np.maximum(below, MIN_SECONDS) * np.maximum(base_above, MIN_SECONDS))
    )


def earlier_runs(before: Mapping[str, Any], parts: Collection[str]) -> list[Data]:
    """List the runs behind the parts that stay of an earlier result, the last run first.

    Args:
        before: the result that is added to; its own `kept` lists the runs before it.
        parts: names of the parts that stay.

    Returns:
        For each run that some of them are of: `parts`, `provenance`, and `settings` if the bench
        writes them.
    """
    older = [
        {**run, "parts": [part for part in run["parts"] if part in parts]}
        for run in before.get("kept", [])
    ]
    known = {part for run in older for part in run["parts"]}
    origin = {name: before[name] for name in ("settings", "provenance") if name in before}
    runs = [{"parts": [part for part in parts if part not in known], **origin}, *older]
    return [run for run in runs if run["parts"]]


class Recorder:
    """The result of a bench: what its parts add, the goals judged anew, the JSON written each time.

    Args:
        bench: its name.
        settings: its dataclass; what JSON can't hold is written as text.
        goals: judges a result; returns the rows of `goals`.
        keep: writes the result; `None` keeps it in memory alone.
        about: entries that stand before the settings, such as `model`.
    """

    def __init__(
        self,
        bench: str,
        settings: Any,
        goals: Callable[[Data], list[Data]] | None = None,
        keep: Keep | None = None,
        **about: Any,
    ) -> None:
        self.goals, self.keep = goals, keep
        values = asdict(settings) if is_dataclass(settings) else dict(settings)  # type: ignore[arg-type]
        self.result: Data = {"bench": bench, **about, "settings": _plain(values)}

    def origin(self, device: Any, dtype: Any, seed: int, draft_threads: int = 0) -> None:
        """Say where, in which dtype and from which seed the parts are measured."""
        name = str(dtype).removeprefix("torch.")
        self.result["provenance"] = provenance(str(device), name, seed, draft_threads)

    def go_on(self, before: Data | None, parts: Collection[str]) -> None:
        """Take over parts of an earlier result, which this run does not measure anew.

        Raises:
            SoonerError: the result is of another model.
        """
        if before is None:
            return
        if before.get("model") != self.result.get("model"):
            raise SoonerError(
                f"the result to add to is of '{before.get('model')}'; write another file"
            )
        known = {name: before[name] for name in parts if name in before}
        self.result |= known
        if known:
            self.result["kept"] = earlier_runs(before, sorted(known))

    def add(self, **parts: Any) -> Data:
        """Take parts in, judge the goals and write the JSON."""
        self.result |= parts
        if self.goals is not None:
            self.result["goals"] = self.goals(self.result)
        if self.keep is not None:
            self.keep(self.result)
        return self.result


def _plain(values: Any) -> Any:
    """Return settings as JSON holds them: paths as text."""
    if isinstance(values, Mapping):
        return {name: _plain(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_plain(value) for value in values]
    return values if isinstance(values, int | float | str | None) else str(values)
