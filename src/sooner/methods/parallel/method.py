"""The method: options, the worker's job, and what to keep of the draft's pixels."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal, Self

import torch

from ...checks import option
from ...engine.acceptance import follow_choices
from ...engine.interface import Drafter
from ...engine.loop import Rule
from ...engine.noise import Purpose
from ...errors import SoonerError
from ..base import DraftMethod, Method, MethodSettings
from ..context import Context
from ..draft_length import Acceptance, ChainAcceptance
from ..pruning import CRITERIA, Criterion, rank, views
from .board import DraftJob, WorkerError
from .drafter import ParallelDrafter, PrefillRanking
from .schedule import AutoSchedule, PaperSchedule
from .standing import StandingDraft, draft_device
from .worker import Worker, place

logger = logging.getLogger("sooner")

MIN_VISUAL = 256
"""Visual tokens that a draft keeps of a short prompt: the miniature's draft takes as long for a
token behind 231 of them as behind 38 (docs/results/parallel.md, tables 3 and 5)."""

PLACEMENTS = ("auto", "process", "spawn", "thread")
DEFAULT_DEPTH = 20
"""Layer L after which the paper ranks; models of fewer than 60 rank after a third of theirs."""


@dataclass(frozen=True)
class ParallelVLM(DraftMethod):
    """Runs parallel speculative decoding with a pruned draft (Kong et al. 2025).

    The draft runs in a worker. While the target prefills, its layers 0 and `layer` choose the
    visual tokens that the draft needs; the draft prefills on those and drafts its first tokens.
    While the target verifies some tokens, the draft writes those behind them.

    Args:
        others: draft, draft_inputs, as of `DraftMethod`.
        prune: share of the visual tokens that the draft does without (alpha); 0 keeps all.
        min_visual: visual tokens that the draft keeps whatever `prune` says, unless that is 1:
            among so few a draft step costs what it costs without them, and it only guesses worse.
        layer: target layers that run before tokens are ranked (L); `None` is 20, or a third of
            the layers of a model with fewer than 60.
        criterion: `uv-prune-by-frame`; `uv-prune` as in the paper, where all tokens of a prompt
            compete; or, to compare with, `uniform`, which takes evenly spread ones.
        num_draft_tokens: most draft tokens verified at once, or `"auto"`: as many as
            `max_draft_tokens`, and with `schedule="paper"` the paper's window.
        max_draft_tokens: upper limit for `"auto"`.
        schedule: `auto` verifies as many tokens as measurement finds to pay most, which may be
            none; `paper` is the paper's pipeline (algorithm 1), whatever it gains. Its window
            gamma is `num_draft_tokens`, or by `"auto"` what a target forward takes in draft
            forwards (eq. 6), measured once. A row whose chain was accepted whole, and whose draft
            behind it stands, waits for gamma tokens (post-verify), any other for one (pre-verify).
        placement: `process` (forked, own cores), `spawn` (a process that gets the draft), `thread`
            (own CUDA stream) or `auto`: on CUDA `thread`, and on a CPU that has a core for it
            `process`, or `spawn` beside a target on CUDA. Processes stay, see `StandingDraft`.
        draft_device: where a spawned process holds the draft, such as `cuda:1`; by default where
            `draft` is. By `auto`, a draft with such a device is spawned, except from CPU to CPU.
        draws_as_target: draw drafts with the target's random numbers, for a rule that follows them.
        standing: a draft process that other objects use as well; for the same draft.
        experience: the acceptance of earlier runs, which this one begins with and adds to; for one
            pair of models and one way to prune. Without it every run begins with a guess.

    Raises:
        SoonerError: a value out of range, an unknown name, or different tokenizers.
    """

    prune: float = option(0.9, 0, 1)
    min_visual: int = option(MIN_VISUAL, 0)
    layer: int | None = option(None, 1)
    criterion: Criterion = option("uv-prune-by-frame", known=CRITERIA)
    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    max_draft_tokens: int = option(16, 1)
    schedule: Literal["auto", "paper"] = option("auto", known=("auto", "paper"))
    placement: Literal["auto", "process", "spawn", "thread"] = option("auto", known=PLACEMENTS)
    draft_device: str | None = None
    draws_as_target: bool = False
    standing: StandingDraft | None = field(default=None, repr=False, compare=False)
    experience: Acceptance | None = field(default=None, repr=False, compare=False)
    _started: list[StandingDraft] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    name: ClassVar[str] = "parallel"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_spawned = self.standing is not None and self.standing.is_spawned
        if self.standing is not None and self.standing.draft is not self.draft:
            raise SoonerError("ParallelVLM: standing holds another draft; give each its own")
        if self.draft_device is not None:
            draft_device(self.draft_device)
        if self.placement not in ("auto", "spawn") and (is_spawned or self.draft_device):
            reason = "standing is a spawned process" if is_spawned else "draft_device is set"
            raise SoonerError(
                f"ParallelVLM: placement is '{self.placement}', but {reason}; use placement='spawn'"
            )

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        prune = cls.prune if settings.prune is None else settings.prune
        options = settings.explicit("placement", "num_draft_tokens")
        if settings.placement in ("auto", "spawn"):
            options |= settings.explicit("draft_device")
        if settings.prune is not None:
            options["min_visual"] = 0  # asked for, so taken at its word
        return cls(
            settings.draft, prune=prune, draft_inputs=settings.draft_inputs,
            standing=settings.standing, experience=settings.experience(prune), **options,
        )  # fmt: skip

    @property
    def needs_whole_prompt(self) -> bool:
        """Whether visual tokens are ranked, by states of the whole prompt."""
        return self.prune > 0

    def joins(self, other: Method) -> bool:
        """A worker drafts for rows that were admitted together."""
        return False

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        adapter, inputs = self.draft_of(context)
        longest, depth = self.largest_block() - 1, self.depth(context.target.layers)
        standing = self._process(adapter.device)
        job = DraftJob(
            inputs=inputs,
            processing=context.processing.copy_to(context.target.device),
            prompt_ids=context.rows.prompts,
            vocab=context.target.vocab_size,
            limit=context.stopping.limit or 0,
            max_ahead=2 * longest,
            noise=context.noise.to(torch.device("cpu")),
            purpose=Purpose.TOKEN if self.draws_as_target else Purpose.DRAFT,
            prompts=context.prompts,
            copies=context.copies,
            chunk=context.prefill_chunk,
            views=views(context.target, context.inputs, context.copies) if self.prune else [],
        )
        ranking = None
        if self.prune:
            keep = partial(rank, self.criterion, self.prune, minimum=self.min_visual)
            ranking = partial(PrefillRanking, context, depth, keep)
        acceptance = ChainAcceptance(self.experience or Acceptance())
        schedule: AutoSchedule | PaperSchedule
        if self.schedule == "paper":
            window = None if self.num_draft_tokens == "auto" else self.num_draft_tokens
            schedule = PaperSchedule(window, longest)
        else:
            schedule = AutoSchedule(acceptance, longest)
            schedule.controller.begin(context.stats.note)
        worker, release = None, None
        try:
            if standing is not None:
                worker, release = standing.worker(job), standing.release
        except WorkerError as error:
            if standing is not None and standing.is_spawned:  # there may be no weights here
                text = f"no draft worker ({error}); decoding goes on without it"
                context.stats.note(text, "worker" if standing.failure else "")
                return Drafter(), follow_choices
            logger.info("this run drafts in a thread of its own: %s", error)
        worker = worker or Worker.in_thread(adapter, job)
        drafter = ParallelDrafter(context, worker, ranking, schedule, acceptance, release)
        return drafter, drafter.verify

    def _process(self, device: torch.device) -> StandingDraft | None:
        """Returns the process in which a draft on `device` works; `None`: it is a thread."""
        placement = place(self.placement, device, self.draft_device)
        if self.standing is not None and (self.standing.is_spawned or placement == "process"):
            return self.standing
        if placement == "thread":
            return None
        if not self._started:
            is_spawned = placement == "spawn"
            device_name = self.draft_device if is_spawned else None
            self._started.append(StandingDraft(self.draft, device_name, is_spawned))
        return self._started[0]

    def depth(self, layers: int) -> int:
        """Returns L for a target of so many layers.

        Raises:
            SoonerError: the target has fewer layers than `layer`.
        """
        if self.layer is not None and self.layer > layers:
            raise SoonerError(
                f"ParallelVLM: layer is {self.layer}, but the target has {layers} layers"
            )
        return self.layer or min(DEFAULT_DEPTH, max(1, layers // 3))
