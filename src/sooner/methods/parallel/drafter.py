"""The target's side of parallel decoding: verify what is there while the worker drafts on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ...engine.acceptance import Guess, VerifyResult, reject_chain
from ...engine.interface import Drafter, Outcome
from ...engine.noise import RowNoise
from ...engine.rows import Rows
from ...engine.sampling import Processing
from ...engine.tree import Tree
from ...models.hooks import ForwardHooks
from ..context import Context, frame_numbers, prompt_lengths, visual_tokens
from ..controller import RoundCost
from ..draft_length import ChainAcceptance
from ..experience import Acceptance
from ..rules import follow_choices
from .tap import OnStates
from .waiting import BoardView, WorkerTimeout
from .window import DraftWindow
from .worker import Worker

logger = logging.getLogger("sooner")

Rank = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""`(states before the decoder, after layer L, visual mask, frames)` of a row -> kept visual
tokens."""

Listen = Callable[[OnStates], ForwardHooks]


class ParallelDrafter(Drafter):
    """Keeps a worker drafting through every target forward (ParallelVLM, algorithm 1).

    While the target verifies a chain, the worker drafts behind it. If the whole chain and the
    token behind it turn out as drafted, the next chain is already there (post-verify). If not,
    the worker starts again from the target's token. The paper's pre-verify then checks the first
    new draft token alone; here the target waits for as many as pay (`DraftWindow`), which is none
    where a draft forward is dear.

    Args:
        context: the run.
        worker: already encoding the draft's prompt.
        rank: chooses kept visual tokens; `None` keeps all.
        listen: hears the target's prefill, and tells what `rank` verifies by.
        num_draft_tokens: most tokens verified at once.
        experience: the acceptance of earlier runs, and where more of it goes.
    """

    def __init__(
        self,
        context: Context,
        worker: Worker,
        rank: Rank | None,
        listen: Listen,
        num_draft_tokens: int,
        experience: Acceptance | None = None,
    ) -> None:
        self.context = context
        self.worker = worker
        context.stats.draft_is_hidden = True
        self.rank = rank
        self.listen = listen
        self.num_draft_tokens = num_draft_tokens
        self.acceptance = ChainAcceptance(experience or Acceptance())
        self.window = DraftWindow(self.acceptance, num_draft_tokens)
        self.times = self.window.controller.times
        self.tap: ForwardHooks | None = None
        self.seen: tuple[Tensor, Tensor]  # visual mask and frames, `[rows, width]` each
        self.lengths: list[int] = []  # of the target's prompts
        self.originals = list(context.rows.active)
        self.pending: list[int] = []  # draft tokens of each row under verification
        self.ran = RoundCost()
        self._worked = (0, 0)  # draft forwards and their nanoseconds, when last looked at
        self.view = BoardView(worker.board)
        self.patience = WorkerTimeout(worker, self._warn)
        self.token_indices: list[list[int]] = []
        self.started = False
        self._warned = False

    def forward_spans(self) -> list[tuple[float, float]]:
        """When the worker's newest forwards began and ended, seconds on `time.perf_counter`."""
        return self.worker.board.forward_spans()

    def on_verify_start(self, pending: Tree, rows: Rows) -> None:
        self.pending = list(pending.host_sizes or pending.sizes.tolist())
        self.ran = RoundCost(pending.rows, 1 + pending.nodes)
        if self.started:
            self.worker.overlap()
            return
        self.started = True
        if self.rank is None:
            self.worker.prefill(None)
        else:
            # What of the prompt is pixels is known before it runs; only the ranking has to wait.
            self.seen = visual_tokens(self.context), frame_numbers(self.context)
            self.lengths = prompt_lengths(self.context)
            self.tap = self.listen(self._choose_tokens)

    def _choose_tokens(self, first: Tensor, last: Tensor) -> None:
        """In the middle of the target's prefill: rank, and set the draft's prefill going."""
        assert self.rank is not None
        with self.context.stats.ranking():
            visual, frames = self.seen
            tokens = []
            for row, length in enumerate(self.lengths):
                mask = visual[row, :length].to(last.device)
                # A sharded target may have layer L on another device.
                begun = first[row, :length].to(last.device)
                row_frames = frames[row, :length].to(last.device)
                indices = self.rank(begun, last[row, :length], mask, row_frames)
                tokens.append(indices.tolist())
            self.token_indices = tokens
            self.worker.prefill(tokens)

    def propose(self, outcome: Outcome) -> Tree:
        if self.tap is not None:
            self.tap.remove()
        self._learn(outcome)
        device = outcome.hidden.device
        if not self.worker.is_usable:
            reason = self.worker.failure
            self._warn(f"the draft worker is gone ({reason}); decoding goes on without it")
            return Tree.empty(len(outcome.new), device)
        self.patience.look(self.view.number)
        self._tell(outcome)
        return self._next_chain(outcome, device)

    def _learn(self, outcome: Outcome) -> None:
        board = self.worker.board
        forwards, nanoseconds = board.forwards, board.nanoseconds
        before, spent = self._worked
        if forwards > before:  # those of this round alone: one that was halted tells nothing more
            self.times.add_draft(1, (nanoseconds - spent) / (forwards - before) / 1e9)
            self._worked = forwards, nanoseconds
        if outcome.is_first:
            self.patience.opening = self.context.stats.seconds["prefill"]
            return
        ran = self.ran
        outcome.forward_time.then(
            lambda seconds: self.window.observe(replace(ran, seconds=seconds))
        )
        self.acceptance.observe(self.pending, outcome.accepted)
        if not any(self.pending):
            self.acceptance.observe(*self._unasked(outcome))

    def _unasked(self, outcome: Outcome) -> tuple[list[int], list[int]]:
        """Returns drafts of each row, 0 or 1, that a plain round has verified by the way, and those
        right.

        So a draft that is not worth verifying now is noticed when it gets better.
        """
        drafted, right = [], []
        for row, new in enumerate(outcome.new):
            place = len(outcome.rows.output(row)) - len(new)
            token = self.view.read(outcome.rows.active[row], place, 1)
            drafted.append(len(token))
            right.append(int(bool(token) and token == new[:1]))
        return drafted, right

    def _tell(self, outcome: Outcome) -> None:
        """Send what was committed."""
        rows = outcome.rows
        new = {
            rows.active[row]: (len(rows.output(row)) - len(tokens), tokens)
            for row, tokens in enumerate(outcome.new)
        }
        self.view.commit(new)
        self.worker.mail.limit_ahead(self.window.ahead())
        self.worker.commit(self.view.number, new)

    def _next_chain(self, outcome: Outcome, device: torch.device) -> Tree:
        """Returns the next chain: what is drafted already, and what is worth waiting for."""
        limits = [max(min(self.num_draft_tokens, budget - 1), 0) for budget in outcome.budget]
        if not any(limits):
            return Tree.empty(len(limits), device)
        have = [len(self._drafted(outcome, row, limits[row])) for row in range(len(limits))]
        if not any(have) and not self.patience.left:
            return Tree.empty(len(limits), device)
        size = self._size(have, max(limits))
        counts = {
            outcome.rows.active[row]: len(outcome.rows.output(row)) + min(size, limits[row])
            for row in range(len(limits))
        }
        if any(length < min(size, limit) for length, limit in zip(have, limits, strict=True)):
            needed = self.view.needed(list(counts))
            self.patience.wait(counts, needed, size, self.times.draft(1) or None)
        drafts = [self._drafted(outcome, row, min(size, limits[row])) for row in range(len(limits))]
        return self._tree(outcome, drafts, device)

    def _size(self, have: list[int], largest: int) -> int:
        return min(self.window.choose(len(have), round(sum(have) / len(have))), largest)

    def _drafted(self, outcome: Outcome, row: int, limit: int) -> list[int]:
        """Draft tokens behind what active row `row` said, if they can be trusted yet."""
        rows = outcome.rows
        return self.view.read(rows.active[row], len(rows.output(row)), limit)

    def _tree(self, outcome: Outcome, drafts: list[list[int]], device: torch.device) -> Tree:
        sizes = [len(draft) for draft in drafts]
        nodes = max(sizes)
        if nodes == 0:
            return Tree.empty(len(sizes), device)
        tokens = torch.tensor([draft + [0] * (nodes - len(draft)) for draft in drafts])
        probs = None
        if self.context.processing.do_sample:
            rows = outcome.rows
            probs = torch.stack(
                [
                    self.worker.board.read_probs(rows.active[row], len(rows.output(row)), nodes + 1)
                    for row in range(len(sizes))
                ]
            ).to(device)
        return Tree.chain(tokens.to(device), sizes, probs)

    def guess(self, tree: Tree, rows: Rows) -> Guess | None:
        """Returns what the worker drew, meanwhile, for the place behind each row's chain."""
        tokens, q, known = [], [], []
        board = self.worker.board
        for row, size in enumerate(self.pending):
            original, place = rows.active[row], len(rows.output(row)) + size
            token = self.view.read(original, place, 1)
            known.append(bool(token))
            tokens.append(token[0] if token else 0)
            q.append(board.read_probs(original, place, 1)[0])
        if not any(known):
            return None
        device = tree.tokens.device
        return Guess(
            torch.tensor(tokens, device=device),
            torch.stack(q).to(device),
            torch.tensor(known, device=device),
        )

    def verify(
        self,
        tree: Tree,
        scores: Tensor,
        processing: Processing,
        noise: RowNoise,
    ) -> VerifyResult:
        """Rejection sampling whose bonus token is coupled with the worker's next draft token."""
        if not processing.do_sample:
            return follow_choices(tree, scores, processing, noise)
        p = processing.probabilities(scores)
        guess = self.guess(tree, self.context.rows) if self.worker.is_usable else None
        if tree.probs is None:
            empty = torch.zeros(tree.rows, 1, p.shape[-1], device=p.device)
            tree = replace(tree, probs=empty)
        return reject_chain(tree, p, noise, guess)

    def select_rows(self, rows: list[int]) -> None:
        self.pending = [self.pending[row] for row in rows]
        self.originals = [self.originals[row] for row in rows]
        self.worker.select_rows(self.originals)

    def close(self) -> None:
        if self.tap is not None:
            self.tap.remove()
        self.worker.board.report(self.context.stats)
        self.patience.close()

    def _warn(self, text: str) -> None:
        """Tell once that something is wrong with the worker."""
        if not self._warned:
            self._warned = True
            self.context.stats.notes.append(text)
            logger.warning(text)
