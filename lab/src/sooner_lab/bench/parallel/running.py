"""Runs one arm on one clip, from the file to the text, with parity and this study's figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sooner.generation import generate
from sooner.methods import Method, ParallelVLM
from sooner.methods.threads import cores
from sooner.parity import compare
from sooner.registry import choices
from sooner.tasks.clip import Clip
from sooner.tasks.loading import ModelPair

from ..caption import CaptionBench
from ..caption_settings import HF, LOSSY
from ..clips import Clips
from ..fidelity import acceptance_ratio
from ..run import TimedRun
from .contenders import ALL_CORES, FORKED, OURS, PLAIN, ParallelContender
from .records import Record, to_record
from .settings import ParallelSettings

WARM = 6
"""New tokens of a warm-up."""


class Runner:
    """Runs arms on the clips of a study."""

    def __init__(self, pair: ModelPair, clips: Clips, settings: ParallelSettings) -> None:
        self.settings = settings
        self.bench = CaptionBench(pair, clips, settings.for_captions())
        self.model = pair.target.model

    def can_run(self, arm: ParallelContender) -> bool:
        """Whether these models have what the arm needs."""
        if arm.name in HF:
            return self.bench.assistant is not None
        if arm.name == FORKED and not self._stands:
            return False
        drafts = arm.alpha is not None or (
            arm.name not in LOSSY and choices()[_base(arm).removesuffix("-auto")].needs_draft
        )
        return not drafts or self.bench.pair.draft is not None

    @property
    def _stands(self) -> bool:
        """Whether the other parallel arms share one draft process."""
        draft = self.bench.pair.draft
        return draft is not None and draft.standing is not None

    def warm_up(self, arm: ParallelContender) -> None:
        """First forwards pay for allocations and kernel choices."""
        few = replace(self.bench.settings, max_new_tokens=WARM)
        full, self.bench.settings = self.bench.settings, few
        try:
            self._timed(arm, 0)
        finally:
            self.bench.settings = full

    def run(self, case: ParallelContender, clip: int, repeat: int) -> Record:
        """A timed run, then what is asked of its tokens."""
        sample, extra = self._timed(case, clip)
        tokens, scores = self.reference(clip)
        parity = compare(tokens, sample.tokens[0], scores)
        about = {"arm": case.name, "clip": clip, "repeat": repeat}
        if repeat == 0 and (case.name in LOSSY or case.name == OURS):
            extra["acceptance_ratio"] = self._acceptance_ratio(case, clip, sample.tokens[0])
        if case.name in LOSSY:
            extra |= self.bench.pruner_figures(case.name)
        return to_record(sample, parity, **about, **extra)

    def reference(self, clip: int) -> tuple[list[int], list[Tensor]]:
        """HF's own incremental decoding of a clip."""
        return self.bench.reference(clip)

    def _timed(self, arm: ParallelContender, clip: int) -> tuple[TimedRun, dict[str, Any]]:
        with all_cores() if arm.name == ALL_CORES else same_threads():
            if arm.name in HF:
                return self.bench.run_hf(arm.name, clip), {"first_token_seconds": None}
            return self._ours(arm, clip)

    def _ours(self, arm: ParallelContender, index: int) -> tuple[TimedRun, dict[str, Any]]:
        start = time.perf_counter()
        clip = self.bench.clip(_base(arm), index)
        method = self.method(arm, clip)
        arrivals: list[float] = []
        begin = time.perf_counter()
        made = generate(
            self.model,
            clip.inputs,
            method,
            prefill=self.bench.pruner(arm.name),
            seed=self.settings.seed + index,  # of what `random` keeps
            on_tokens=lambda row, tokens, drafted: arrivals.append(time.perf_counter()),
            max_new_tokens=clip.max_new_tokens,
            do_sample=False,
        )
        self.bench.pair.target.tokenizer.decode(made.tokens[0])
        seconds = time.perf_counter() - start
        stats = made.stats
        extra: dict[str, Any] = {"first_token_seconds": arrivals[0] - begin}
        sample = TimedRun(made.tokens, stats.decode_seconds, seconds, stats.decode_tokens, stats)
        return sample, extra

    def method(self, arm: ParallelContender, clip: Clip) -> Method:
        """The arm's method, with the draft's inputs of this clip."""
        pair = self.bench.pair
        if arm.alpha is None:
            return self.bench.method(_base(arm), clip)
        assert pair.draft is not None
        placement: Any = self.settings.placement
        return ParallelVLM(
            pair.draft.model,
            prune=arm.alpha,
            min_visual=0,
            standing=None if arm.name == FORKED else pair.draft.standing,
            criterion=arm.criterion,
            placement=placement,
            draft_inputs=clip.draft_inputs,
        )

    def _acceptance_ratio(self, arm: ParallelContender, index: int, tokens: list[int]) -> float:
        """Share of the arm's tokens that the full target would say too (table 2's A)."""
        pruner = self.bench.pruner(arm.name)
        stepwise = getattr(pruner, "decode_ratio", 0) > 0
        clip = self.bench.clip(PLAIN, index)
        ratio = acceptance_ratio(self.model, clip.inputs, tokens, pruner, stepwise=stepwise)
        return ratio.greedy


@contextmanager
def all_cores() -> Iterator[None]:
    """As many torch threads as there are cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def same_threads() -> Iterator[None]:
    """Threads as they are."""
    yield


def _base(arm: ParallelContender) -> str:
    """The arm of `sooner bench caption` whose clips and settings this one has."""
    if arm.alpha is not None:
        return OURS
    return PLAIN if arm.name == ALL_CORES else arm.name
