"""The target's side of parallel decoding: verify what is there while the worker drafts on, as many
tokens at once as a schedule says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...engine.acceptance import Guess, VerifyResult, follow_choices, reject_chain
from ...engine.composition import refusal
from ...engine.interface import Drafter, Outcome, cache_of
from ...engine.noise import RowNoise
from ...engine.rows import Rows
from ...engine.sampling import Processing
from ...engine.tree import Tree
from ...models.hooks import ForwardHooks
from ..context import Context, prompt_lengths, visual_tokens
from ..controller import RoundCost
from ..draft_length import ChainAcceptance
from .board import TokenIndices
from .schedule import AutoSchedule, PaperSchedule
from .worker import Worker

OnRanked = Callable[[TokenIndices], None]


class PrefillRanking(ForwardHooks):
    """Ranks visual tokens in the midst of the target's prefill, or of its last chunk, whose other
    layers hide what `on_ranked` does with those that the draft keeps of each row.

    Args:
        context: the run.
        depth: how many layers have run when tokens are ranked (L).
        rank: as `pruning.rank`, of states, visual tokens and frames.
    """

    def __init__(
        self, context: Context, depth: int, rank: Callable[..., Tensor], on_ranked: OnRanked
    ) -> None:
        super().__init__()
        self.stats, self.rank, self.on_ranked = context.stats, rank, on_ranked
        self.runner = context.runner
        # What of the prompt is pixels is known before it runs; only the ranking has to wait.
        frames = context.target.packed_frames(context.inputs)
        self.frames = frames.repeat_interleave(context.copies, 0)
        self.visual = visual_tokens(context)
        self.lengths = prompt_lengths(context)
        self.first: list[Tensor] = []  # states of each chunk, [rows, tokens, hidden]
        self.last: list[Tensor] = []
        layers = context.target.decoder.layers
        self.before(layers[0], self._enter, first=True)  # ahead of a pruner
        self.after(layers[depth - 1], self._leave)

    def _enter(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if cache_of(kwargs) is self.runner.cache:  # others may decode between two chunks
            self.first.append(args[0] if args else kwargs["hidden_states"])

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        if cache_of(kwargs) is not self.runner.cache:
            return
        self.last.append(output[0] if isinstance(output, tuple) else output)
        width, left = self.first[-1].shape[1], self.last[-1].shape[1]
        if width != left:
            raise refusal("pruned", "parallel, ranked behind the pruner", width=width, left=left)
        first, last = torch.cat(self.first, 1), torch.cat(self.last, 1)
        if last.shape[1] < self.visual.shape[1]:
            return
        with self.stats.ranking():
            # A sharded target may have layer L on another device.
            parts = [part.to(last.device) for part in (first, last, self.visual, self.frames)]
            kept = [
                self.rank(*(part[row, :length] for part in parts)).tolist()
                for row, length in enumerate(self.lengths)
            ]
            self.on_ranked(kept)
        self.remove()


class ParallelDrafter(Drafter):
    """Keeps a worker drafting through every target forward (ParallelVLM, algorithm 1).

    While the target verifies a chain, the worker drafts behind it. If the whole chain and the
    token behind it turn out as drafted, the next chain is already there (post-verify). If not,
    the worker starts again from the target's token (pre-verify). How many tokens the target then
    waits for is the schedule's to say.

    Args:
        context: the run.
        worker: already encoding the draft's prompt.
        ranking: hooks the target's prefill; `None` keeps all visual tokens.
        schedule: of the chains.
        acceptance: of drafts, which this run adds to.
        release: called when the run is over and others may have the worker.
    """

    def __init__(
        self, context: Context, worker: Worker, ranking: Callable[[OnRanked], ForwardHooks] | None,
        schedule: AutoSchedule | PaperSchedule, acceptance: ChainAcceptance,
        release: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self.rows, self.stats, self.processing = context.rows, context.stats, context.processing
        self.worker, self.board, self.release = worker, worker.board, release
        self.forward_spans = worker.board.forward_spans
        self.stats.draft_is_hidden = True
        self.ranking, self.schedule, self.acceptance = ranking, schedule, acceptance
        self.hooks = ForwardHooks()
        self.pending: list[int] = []  # draft tokens of each row under verification
        self.ran = RoundCost()
        self.token_indices: TokenIndices = []
        self._forwards = (0, 0)  # of the draft, and their nanoseconds, when last looked at
        self._changed: dict[int, int] = {}  # original row -> update to be acknowledged
        self._has_warned = False

    def on_verify_start(self, pending: Tree, rows: Rows) -> None:
        is_first = not self.pending
        self.pending = list(pending.host_sizes or pending.sizes.tolist())
        self.ran = RoundCost(pending.rows, 1 + pending.nodes)
        if is_first and self.ranking is not None:
            self.hooks = self.ranking(self._prefill)
        elif is_first:
            self._prefill([])

    def _prefill(self, indices: TokenIndices) -> None:
        self.token_indices = indices
        if self.worker.is_usable:
            self.board.prefill(indices, self.schedule.ahead())
            self.worker.notify()

    def propose(self, outcome: Outcome) -> Tree:
        self.hooks.remove()
        self._learn(outcome)
        device = outcome.hidden.device
        if not self.worker.is_usable:
            reason = self.worker.failure
            self._warn(f"the draft worker is gone ({reason}); decoding goes on without it")
            return Tree.empty(len(outcome.new), device)
        drafts = self._next_chains(outcome, self._commit(outcome))
        if self.worker.is_usable and not self.worker.patience(self._draft_seconds):
            self._warn("the draft worker does not answer; decoding goes on without it meanwhile")
        sizes = [len(draft) for draft in drafts]
        nodes = max(sizes)
        if nodes == 0:
            return Tree.empty(len(sizes), device)
        tokens = torch.tensor([draft + [0] * (nodes - len(draft)) for draft in drafts])
        probs = None
        if self.processing.do_sample:
            probs = self._probs([0] * len(sizes), nodes + 1).to(device)
        return Tree.chain(tokens.to(device), sizes, probs)

    @property
    def _draft_seconds(self) -> float:
        return self.schedule.times.draft(1)

    def _learn(self, outcome: Outcome) -> None:
        forwards, nanoseconds = int(self.board.forwards), int(self.board.nanoseconds)
        before, spent = self._forwards
        if forwards > before:  # those of this round alone: one that was halted tells nothing more
            seconds = (nanoseconds - spent) / (forwards - before) / 1e9
            self.schedule.times.add_draft(1, seconds)
            self._forwards = forwards, nanoseconds
        if outcome.is_first:
            self.worker.opening = self.stats.seconds["prefill"]
            return
        ran = self.ran
        outcome.forward_time.then(
            lambda seconds: self.schedule.observe(replace(ran, seconds=seconds))
        )
        self.acceptance.observe(self.pending, outcome.accepted)
        if any(self.pending):
            return
        # A plain round verifies a draft by the way, so that one that gets better is noticed.
        tokens = [self._drafted(row, 1, -len(new)) for row, new in enumerate(outcome.new)]
        right = [int(token == new[:1]) for token, new in zip(tokens, outcome.new, strict=True)]
        self.acceptance.observe(list(map(len, tokens)), right)

    def _commit(self, outcome: Outcome) -> list[bool]:
        """Posts what was committed; returns whether the draft of each row is what the target
        generated, and goes on. That of the others can't be read until the worker has acknowledged
        the update."""
        new: dict[int, tuple[int, list[int]]] = {}
        for row, tokens in enumerate(outcome.new):
            new[self.rows.active[row]] = len(self.rows.output(row)) - len(tokens), tokens
        wrong = [
            row
            for row, (position, tokens) in new.items()
            if self.board.draft(row, position, len(tokens)) != tokens
        ]
        update = self.board.commit(new, self.schedule.ahead())
        self.worker.notify()
        self._changed |= dict.fromkeys(wrong, update)
        return [not outcome.is_first and row not in wrong for row in new]

    def _next_chains(self, outcome: Outcome, stands: list[bool]) -> list[list[int]]:
        """Returns the next chains: what is drafted already, and what is worth waiting for."""
        limits = [max(min(self.schedule.largest, budget - 1), 0) for budget in outcome.budget]
        have = [len(self._drafted(row, limit)) for row, limit in enumerate(limits)]
        seconds = self._draft_seconds
        is_waited_for = self.worker.patience(seconds) > 0
        if not any(limits) or not (any(have) or is_waited_for):
            return [[] for _ in limits]
        sizes = list(map(min, self.schedule.sizes(have, stands), limits))
        if is_waited_for and any(count < size for count, size in zip(have, sizes, strict=True)):
            active, output = self.rows.active, self.rows.output
            counts = {active[row]: len(output(row)) + size for row, size in enumerate(sizes)}
            update = max(self._changed.get(row, 0) for row in counts)
            self.worker.wait(counts, update, max(sizes) + 1, seconds)
        return [self._drafted(row, size) for row, size in enumerate(sizes)]

    def _drafted(self, row: int, limit: int, offset: int = 0) -> list[int]:
        """Returns up to `limit` draft tokens behind the text of an active row, none while they are
        in doubt; `offset` counts from its end."""
        original = self.rows.active[row]
        if int(self.board.acknowledged) < self._changed.get(original, 0):
            return []
        return self.board.draft(original, len(self.rows.output(row)) + offset, limit)

    def _probs(self, offsets: list[int], count: int) -> Tensor:
        """Returns what `count` tokens of each row from an offset behind its text were drawn from,
        `[rows, count, vocab]`."""
        starts = [len(self.rows.output(row)) + offset for row, offset in enumerate(offsets)]
        places = zip(self.rows.active, starts, strict=True)
        return torch.stack([self.board.draft_probs(*place, count) for place in places])

    def guess(self, device: torch.device) -> Guess | None:
        """Returns what the worker drew, meanwhile, for the place behind each row's chain."""
        tokens = [self._drafted(row, 1, size) for row, size in enumerate(self.pending)]
        if not self.worker.is_usable or not any(tokens):
            return None
        return Guess(
            torch.tensor([token[0] if token else 0 for token in tokens], device=device),
            self._probs(self.pending, 1)[:, 0].to(device),
            torch.tensor([bool(token) for token in tokens], device=device),
        )

    def verify(
        self, tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
    ) -> VerifyResult:
        """Rejection sampling whose bonus token is coupled with the worker's next draft token."""
        if not processing.do_sample:
            return follow_choices(tree, scores, processing, noise)
        p = processing.probabilities(scores)
        if tree.probs is None:
            tree = replace(tree, probs=p.new_zeros(tree.rows, 1, p.shape[-1]))
        return reject_chain(tree, p, noise, self.guess(tree.tokens.device))

    def select_rows(self, rows: list[int]) -> None:
        self.pending = [self.pending[row] for row in rows]

    def close(self) -> None:
        self.hooks.remove()
        stats, forwards = self.stats, int(self.board.forwards)
        stats.draft_forwards = forwards
        stats.draft_forward_seconds = int(self.board.nanoseconds) / 1e9
        if forwards:
            stats.draft_seconds = [stats.draft_forward_seconds / forwards]
        if (warning := self.worker.finish(self._draft_seconds)) is not None:
            self._warn(warning)
        if self.release is not None:
            self.release()

    def _warn(self, text: str) -> None:
        """Reports once that something is wrong with the worker."""
        if not self._has_warned:
            self._has_warned = True
            self.stats.note(text, "worker")
