"""The arms: each method over the engine's own loop, on decoders whose logits follow a script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from sooner.engine.loop import run
from sooner.engine.sampling_params import SamplingParams
from sooner.methods import (
    HSD,
    Autoregressive,
    CoupledJacobi,
    Eagle,
    Method,
    ParallelVLM,
    PromptLookup,
    SDTree,
    Speculative,
)
from sooner.methods.aligned.size import Experience
from sooner.methods.parallel.standing import StandingDraft
from sooner.methods.parallel.worker import ProcessWorker, place
from sooner.methods.sizing.costs import Acceptance
from sooner.methods.tree_draft import STATIC_TREE

from ..run import Arm, TimedRun
from .models import DecoderShape, ReplayAdapter, ReplayHead, build
from .script import CONTINUATIONS, LogitTable, Script
from .settings import ReplaySettings

Make = Callable[[int], Method]
"""The method of text number `index`."""


class Decoders:
    """The target, the draft and the head of a run, built once; a script makes adapters of them."""

    def __init__(self, settings: ReplaySettings) -> None:
        device, dtype = torch.device(settings.device), getattr(torch, settings.dtype)
        spare = max(settings.eagle_nodes, settings.hsd_nodes, 64)
        positions = settings.prompt_tokens + settings.new_tokens + spare
        shapes = (
            DecoderShape(settings.layers, settings.width, settings.vocab, positions),
            DecoderShape(settings.draft_layers, settings.draft_width, settings.vocab, positions),
        )
        self.target_model, self.draft_model = (
            build(shape, device, dtype, settings.seed + number)
            for number, shape in enumerate(shapes)
        )
        self.vocab = settings.vocab
        self.target = ReplayAdapter(self.target_model, LogitTable.of_target(self.vocab))
        self.head = ReplayHead.scripted(self.target, settings.seed + len(shapes))

    def draft(self, script: Script) -> ReplayAdapter:
        """The draft, right where the script says so."""
        return ReplayAdapter(self.draft_model, LogitTable.of_draft(script))

    def target_of_head(self, script: Script) -> ReplayAdapter:
        """The target, whose LM head reads the script in the states that the draft head makes."""
        table = LogitTable.of_target(self.vocab, CONTINUATIONS)
        return ReplayAdapter(self.target_model, table, LogitTable.of_draft(script))

    def guessing_target(self, script: Script) -> ReplayAdapter:
        """The target, which behind wrong tokens says the right one as often as the script does."""
        target = ReplayAdapter(self.target_model, LogitTable.of_target(self.vocab))
        target.guesses = torch.tensor(script.ranks, device=target.device) == 0
        return target


class PointArms:
    """Every arm at one point: rows, and a script.

    What a method learns over calls (acceptance, trust) it keeps within a point, as a server would.

    Args:
        decoders: of the run.
        script: where drafts are right.
        settings: lengths and windows.
        rows: of the batch.
        best: draft tokens a round of `speculative-best`.
    """

    def __init__(
        self,
        decoders: Decoders,
        script: Script,
        settings: ReplaySettings,
        rows: int,
        best: int,
    ) -> None:
        self.decoders, self.script, self.settings, self.rows = decoders, script, settings, rows
        self.draft = decoders.draft(script)
        self.standing: StandingDraft | None = None
        drafts, max_tokens = self.draft, settings.max_draft_tokens
        auto, experience = Acceptance(), Experience()
        self.makers: dict[str, tuple[ReplayAdapter, Make]] = {}
        plain = Autoregressive()
        fixed = {
            "plain": plain,
            "speculative": Speculative(drafts, settings.num_draft_tokens),
            "speculative-best": Speculative(drafts, best),
            "speculative-auto": Speculative(drafts, max_draft_tokens=max_tokens, experience=auto),
            "sd-tree": SDTree(drafts, STATIC_TREE),
            "prompt-lookup": PromptLookup(settings.lookup_tokens),
        }
        for name, method in fixed.items():
            self.makers[name] = decoders.target, _always(method)
        self.makers["hsd"] = (
            decoders.target,
            lambda index: HSD(
                [[script.rough(segment)] for segment in self.segments(index)],
                max_nodes=settings.hsd_nodes,
                experience=experience,
            ),
        )
        eagle = Eagle(
            decoders.head,
            nodes=settings.eagle_nodes,
            depth=settings.eagle_depth,
            top_k=settings.eagle_top_k,
        )
        self.makers["eagle"] = decoders.target_of_head(script), _always(eagle)
        jacobi = CoupledJacobi(settings.jacobi_window)
        self.makers["jacobi"] = decoders.guessing_target(script), _always(jacobi)

    @contextmanager
    def arms(self) -> Iterator[list[Arm]]:
        """Yields the arms that the settings ask for; the draft's process ends with the
        context.
        """
        names = self.settings.methods
        if "parallel" in names:
            self._stand()
        try:
            yield [self._arm(name) for name in names]
        finally:
            if self.standing is not None:
                self.standing.close()

    def _stand(self) -> None:
        """Make the parallel arm, with one draft process for all its runs where drafts are
        forked."""
        if place("auto", self.draft.device) is ProcessWorker:
            self.standing = StandingDraft(self.draft)
        method = ParallelVLM(
            self.draft,
            prune=0.0,
            num_draft_tokens=self.settings.max_draft_tokens,
            standing=self.standing,
            experience=Acceptance(),
        )
        self.makers["parallel"] = self.decoders.target, _always(method)

    def _arm(self, name: str) -> Arm:
        target, make = self.makers[name]

        def decode(index: int) -> TimedRun:
            return self._timed(target, make(index), index)

        return Arm(name, decode)

    def segments(self, index: int) -> list[int]:
        """Segments of the text that the rows of text number `index` say."""
        first = index * self.rows
        return [(first + row) % self.script.segments for row in range(self.rows)]

    def texts(self, index: int) -> list[list[int]]:
        """What the rows of a text have to say, whatever the method."""
        return [self.script.text(segment) for segment in self.segments(index)]

    def prompts(self, index: int) -> Tensor:
        """Prompts `[rows, prompt_tokens]`: tokens of elsewhere, a rough copy of the text, and the
        token that the text begins behind."""
        lines = []
        for segment in self.segments(index):
            copy = self.script.rough(segment)
            missing = self.settings.prompt_tokens - len(copy) - 1
            start = self.script.decoy(segment * self.script.segment)
            filler = [(start - 1 - offset) % self.script.vocab for offset in range(missing)]
            lines.append([*filler, *copy, self.script.before(segment)])
        return torch.tensor(lines, device=self.decoders.target.device)

    def _timed(self, target: ReplayAdapter, method: Method, index: int) -> TimedRun:
        ids = self.prompts(index)
        params = SamplingParams(max_new_tokens=self.settings.new_tokens)
        start = time.perf_counter()
        session = method.session(target, {"input_ids": ids}, params)
        tokens = run(session)
        seconds, stats = time.perf_counter() - start, session.stats
        return TimedRun(tokens, stats.decode_seconds, seconds, stats.decode_tokens, stats)


def _always(method: Method) -> Make:
    return lambda index: method
