"""Texts that HF and sooner decode from the same prompts, a mark behind every round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sooner.engine.graphs.recorder import CudaGraphs, Replay

from .bench import GpuBench
from .profile import RoundProfile
from .timing import DeviceClock, Run, Timing

Inputs = Mapping[str, Tensor]
"""What a processor returns; `input_ids` are `[rows, width]`."""


class Rerun:
    """In the place of CUDA graphs on CPUs: runs again what would be replayed."""

    nbytes = 0

    def warm_up(self, run: Run) -> None:
        run()

    def record(self, run: Run, tensors: Sequence[Tensor]) -> Replay:
        return lambda same: same()


class Captures:
    """How many graphs were captured; whoever captures them is counted."""

    count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        kinds: tuple[Any, ...] = (CudaGraphs, Rerun)
        originals = [kind.record for kind in kinds]

        def counted(original: Callable[..., Replay]) -> Callable[..., Replay]:
            def record(recorder: Any, run: Run, tensors: Sequence[Tensor]) -> Replay:
                self.count += 1
                return original(recorder, run, tensors)

            return record

        for kind, original in zip(kinds, originals, strict=True):
            kind.record = counted(original)
        try:
            yield
        finally:
            for kind, original in zip(kinds, originals, strict=True):
                kind.record = original


class Rounds:
    """The rounds of a text: a mark at the end of each, and its tokens; the prefill is the first."""

    def __init__(self, clock: DeviceClock, profile: RoundProfile | None = None) -> None:
        self.clock, self.profile = clock, profile
        self.marks: list[Any] = []
        self.sizes: list[int] = []
        self._row = -1

    def end_round(self, tokens: int) -> None:
        """A round has given `tokens` in all rows."""
        if self.profile is not None:
            self.profile.at_round(1 + len(self.sizes))
        self.marks.append(self.clock.mark())
        self.sizes.append(tokens)

    def on_tokens(self, row: int, tokens: list[int], drafted: int) -> None:
        """As `sooner.generate` reports: rows of a round one by one, ascending."""
        if self.sizes and row > self._row:
            self.sizes[-1] += len(tokens)
        else:
            self.end_round(len(tokens))
        self._row = row


@dataclass
class DecodedText:
    """One decoded batch.

    Attributes:
        tokens: new tokens of each row.
        gaps: seconds of each round behind the prefill, and `sizes`: tokens of all rows in each.
        seconds: of the whole call.
        captures: graphs that it captured.
        stats: of `sooner.generate`; `None` for HF.
    """

    tokens: list[list[int]]
    gaps: list[float]
    sizes: list[int]
    seconds: float = 0.0
    captures: int = 0
    stats: Any = None

    @property
    def late(self) -> tuple[list[float], list[int]]:
        """Gaps and sizes of the second half, where everything has been captured."""
        half = len(self.gaps) // 2
        return self.gaps[half:], self.sizes[half:]


Decode = Callable[[Inputs, int, RoundProfile | None], DecodedText]
"""`(inputs, new tokens, profile) -> text`."""


def hf(bench: GpuBench, model: Any, **options: Any) -> Decode:
    """HF's `generate`; `options` are its own."""
    from transformers import LogitsProcessor, LogitsProcessorList

    class RoundMarks(LogitsProcessor):
        """Called once a step; marks it and changes nothing."""

        def __init__(self, rounds: Rounds) -> None:
            self.rounds = rounds

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            self.rounds.end_round(len(input_ids))
            return scores

    def decode(inputs: Inputs, new: int, profile: RoundProfile | None = None) -> DecodedText:
        rounds = Rounds(bench.clock, profile)
        start = time.perf_counter()
        made = model.generate(
            **inputs,
            max_new_tokens=new,
            do_sample=False,
            logits_processor=LogitsProcessorList([RoundMarks(rounds)]),
            **options,
        )
        tokens = made[:, inputs["input_ids"].shape[1] :].tolist()
        seconds = time.perf_counter() - start
        return DecodedText(tokens, bench.clock.gaps(rounds.marks), rounds.sizes[1:], seconds)

    return decode


def sooner_arm(
    bench: GpuBench, model: Any, make: Callable[[], Any] = lambda: None, **options: Any
) -> Decode:
    """`sooner.generate` by a method.

    Args:
        make: the method, made with the first text and kept.
        options: of `sooner.generate`; by default its steps are graphs.
    """
    from sooner.generation import generate

    options = {**graph_options(bench), "do_sample": False, **options}
    made: list[Any] = []

    def decode(inputs: Inputs, new: int, profile: RoundProfile | None = None) -> DecodedText:
        if not made:
            made.append(make())
        rounds, captures = Rounds(bench.clock, profile), Captures()
        start = time.perf_counter()
        with captures.counting():
            text = generate(
                model, inputs, made[0], max_new_tokens=new, on_tokens=rounds.on_tokens, **options
            )
        bench.clock.wait()
        seconds = time.perf_counter() - start
        gaps = bench.clock.gaps(rounds.marks)
        return DecodedText(text.tokens, gaps, rounds.sizes[1:], seconds, captures.count, text.stats)

    return decode


def graph_options(bench: GpuBench) -> dict[str, Any]:
    """Arguments by which `sooner.generate` captures its steps."""
    return {"graphs": "auto" if bench.clock.is_cuda else Rerun()}


def compile_options(bench: GpuBench) -> dict[str, Any]:
    """Arguments by which it compiles the decoder as well; a CPU proves the way without a
    compiler."""
    return {"compile": bench.clock.is_cuda or {"backend": "eager"}}


@dataclass
class ArmTexts:
    """All texts of one arm, or why there are none.

    Attributes:
        runs: the first call, which compiles and captures, then the others.
        failure: see `GpuBench.failed`; empty for an arm that has run.
        profile: figures of a late round by the profiler, or its failure.
    """

    name: str
    runs: list[DecodedText] = field(default_factory=list)
    failure: dict[str, Any] = field(default_factory=dict)
    profile: dict[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> list[list[int]] | None:
        return self.runs[0].tokens if self.runs else None

    @property
    def round(self) -> Timing:
        """Seconds of a late round of the later calls."""
        return Timing.of([gap for call in self.runs[1:] for gap in call.late[0]])

    @property
    def rate(self) -> Timing:
        """Tokens a second of the late rounds, a sample a call."""
        late = [call.late for call in self.runs[1:]]
        return Timing.of([sum(sizes) / sum(gaps) for gaps, sizes in late])

    def figures(self, plain: ArmTexts) -> dict[str, Any]:
        """The figures of an arm; none of speed if its text is not that of `plain`.

        Returns:
            `identical`, or where it `differs`; `tokens_per_second` of late rounds with `interval`
            and `samples`;
            `round_seconds`; `over_plain`; `break_even`, the tokens a round at which the arm is as
            fast as `plain`; `tokens_a_round` of a row; `first_call_seconds` beside `call_seconds`;
            `captures`, graphs by call; of the profiler `kernels`, `launches` and `busy_seconds` a
            round, and `idle_share`: of a round without the profiler in which the GPU does nothing.
        """
        if self.failure or plain.failure:
            return dict(self.failure or {"missing": f"{plain.name}: {plain.failure['missing']}"})
        if self.tokens != plain.tokens:
            pairs = zip(self.tokens or [], plain.tokens or [], strict=False)
            return {"identical": False, "differs": [first_apart(*pair) for pair in pairs]}
        rate, seconds = self.rate, self.round.seconds
        first, *later = self.runs
        sizes = [size for call in later for size in call.late[1]]
        figures = {
            "identical": True,
            "tokens_per_second": rate.seconds,
            "interval": list(rate.interval),
            "samples": rate.samples,
            "round_seconds": seconds,
            "over_plain": rate.seconds / plain.rate.seconds,
            "break_even": seconds / plain.round.seconds,
            "tokens_a_round": sum(sizes) / len(sizes) / len(first.tokens),
            "first_call_seconds": first.seconds,
            "call_seconds": Timing.of([call.seconds for call in later]).seconds,
            "captures": [call.captures for call in self.runs],
            **self.profile,
        }
        if self.profile.get("kernels"):
            figures["idle_share"] = max(1 - self.profile["busy_seconds"] / seconds, 0.0)
        if later[-1].stats is not None:
            figures["notes"] = later[-1].stats.notes[:4]
        return figures


def first_apart(mine: list[int], plain: list[int]) -> tuple[int, list[int], list[int]]:
    """Where two texts part, and the tokens of each from there on, four at most."""
    same = [first == second for first, second in zip(mine, plain, strict=False)]
    place = [*same, False].index(False)
    return place, mine[place:][:4], plain[place:][:4]


def interleaved(
    bench: GpuBench,
    out: dict[str, Any],
    arms: Mapping[str, Decode],
    inputs: Inputs,
    new: int,
    write: Callable[[Mapping[str, ArmTexts]], object],
) -> None:
    """Every arm once a round: the first call, the timed ones, then one that is profiled.

    An arm that fails is out; its error is kept, and what failed in the profiler costs the profile
    alone.

    Args:
        out: the section's, which says what arms were left out as its time was over.
        write: puts figures into the result, which is kept, behind every round but the first: a
            machine may be taken away in the middle of a section.
    """
    settings = bench.settings
    texts = {name: ArmTexts(name) for name in arms}
    for turn in range(1 + settings.text_runs + (settings.profiled_rounds > 0)):
        if turn > 1 and bench.deadline.left < 0:
            break  # each arm has a first call and another one
        for name, decode in arms.items():
            text = texts[name]
            if not turn and bench.is_late(out, name):
                text.failure = {"missing": "the section's time was over"}
            if text.failure:
                continue
            try:
                if turn <= settings.text_runs:
                    text.runs.append(decode(inputs, new, None))
                else:
                    text.profile = profiled(bench, decode, inputs, new)
            except Exception as error:
                failure = bench.failed(error)
                if turn <= settings.text_runs:
                    text.failure = failure
                else:
                    text.profile = {"profile": failure}
        if turn:
            write(texts)
            bench.keep()


def profiled(bench: GpuBench, decode: Decode, inputs: Inputs, new: int) -> dict[str, float]:
    """The figures of some rounds in the middle of one more text; empty where it ends before."""
    rounds = bench.settings.profiled_rounds
    profile = RoundProfile(bench.clock, max(2, new // 8), rounds)
    try:
        decode(inputs, new, profile)
    finally:
        profile.stop()
    return profile.figures()
