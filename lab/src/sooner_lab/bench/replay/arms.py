"""The arms: each method over the engine's own loop, on decoders whose logits follow a script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from sooner.engine.loop import run
from sooner.engine.row_sampling import SamplingParams
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
from sooner.methods.aligned.alignment import Experience
from sooner.methods.draft_length import Acceptance
from sooner.methods.parallel.standing import StandingDraft
from sooner.methods.parallel.worker import place
from sooner.methods.sd_tree import STATIC_TREE

from ..run import Arm, TimedRun
from .models import DecoderShape, ReplayAdapter, ReplayHead, build
from .script import LogitTable, Script
from .settings import CONTINUATIONS, ReplaySettings

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
        """Return the draft, right where the script says so."""
        return ReplayAdapter(self.draft_model, LogitTable.of_draft(script))

    def target_of_head(self, script: Script) -> ReplayAdapter:
        """Return the target, whose LM head reads the script in the states of the draft head."""
        table = LogitTable.of_target(self.vocab, CONTINUATIONS)
        return ReplayAdapter(self.target_model, table, LogitTable.of_draft(script))

    def guessing_target(self, script: Script) -> ReplayAdapter:
        """Return the target that behind wrong tokens is right as often as the script is."""
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
        self, decoders: Decoders, script: Script, settings: ReplaySettings, rows: int, best: int
    ) -> None:
        self.decoders, self.script, self.settings, self.rows = decoders, script, settings, rows
        self.draft = decoders.draft(script)
        self.best = best

    @contextmanager
    def arms(self) -> Iterator[list[Arm]]:
        """Yield the arms that the settings ask for; the draft's process ends with the context."""
        standing: StandingDraft | None = None
        is_forked = place("auto", self.draft.device) == "process"
        if "parallel" in self.settings.methods and is_forked:
            standing = StandingDraft(self.draft)  # one process for all runs
        try:
            makers = self._makers(standing)
            yield [self._arm(name, *makers[name]) for name in self.settings.methods]
        finally:
            if standing is not None:
                standing.close()

    def _makers(self, standing: StandingDraft | None) -> dict[str, tuple[ReplayAdapter, Make]]:
        """Return the target and the method of each arm."""
        decoders, script, settings, draft = self.decoders, self.script, self.settings, self.draft
        longest, experience = settings.max_draft_tokens, Experience()
        fixed = {
            "plain": Autoregressive(),
            "speculative": Speculative(draft, settings.num_draft_tokens),
            "speculative-best": Speculative(draft, self.best),
            "speculative-auto": Speculative(
                draft, max_draft_tokens=longest, experience=Acceptance()
            ),
            "sd-tree": SDTree(draft, STATIC_TREE),
            "prompt-lookup": PromptLookup(settings.lookup_tokens),
            "parallel": ParallelVLM(
                draft, prune=0.0, num_draft_tokens=longest, standing=standing,
                experience=Acceptance(),
            ),
            "eagle": Eagle(
                decoders.head, nodes=settings.eagle_nodes, depth=settings.eagle_depth,
                top_k=settings.eagle_top_k,
            ),
            "jacobi": CoupledJacobi(settings.jacobi_window),
        }  # fmt: skip
        targets = {
            "eagle": decoders.target_of_head(script),
            "jacobi": decoders.guessing_target(script),
        }

        def hsd(index: int) -> Method:
            drafts = [[script.rough(segment)] for segment in script.segments_of(index, self.rows)]
            return HSD(drafts, max_nodes=settings.hsd_nodes, experience=experience)

        makers = {
            name: (targets.get(name, decoders.target), _always(method))
            for name, method in fixed.items()
        }
        return makers | {"hsd": (decoders.target, hsd)}

    def texts(self, index: int) -> list[list[int]]:
        """Return what the rows of a text have to generate, whatever the method."""
        return [self.script.text(each) for each in self.script.segments_of(index, self.rows)]

    def prompts(self, index: int) -> Tensor:
        """Return prompts `[rows, prompt_tokens]`: tokens of elsewhere, a rough copy of the text,
        and the token that the text begins behind."""
        lines = []
        for segment in self.script.segments_of(index, self.rows):
            copy = self.script.rough(segment)
            missing = self.settings.prompt_tokens - len(copy) - 1
            start = self.script.decoy(segment * self.script.segment)
            filler = [(start - 1 - offset) % self.script.vocab for offset in range(missing)]
            lines.append([*filler, *copy, self.script.before(segment)])
        return torch.tensor(lines, device=self.decoders.target.device)

    def _arm(self, name: str, target: ReplayAdapter, make: Make) -> Arm:
        def decode(index: int) -> TimedRun:
            method, ids = make(index), self.prompts(index)
            params = SamplingParams(max_new_tokens=self.settings.new_tokens)
            start = time.perf_counter()
            session = method.session(target, {"input_ids": ids}, params)
            tokens = run(session)
            seconds, stats = time.perf_counter() - start, session.stats
            return TimedRun(tokens, stats.decode_seconds, seconds, stats.decode_tokens, stats)

        return Arm(name, decode)


def _always(method: Method) -> Make:
    return lambda index: method
