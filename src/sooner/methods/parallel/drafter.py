"""The target's side of parallel decoding: verify what is there while the worker drafts on, as many
tokens at once as a schedule says."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...engine.acceptance import Guess, VerifyResult, follow_choices, reject_chain
from ...engine.cache import SlotCache
from ...engine.interface import Drafter, Outcome, cache_of
from ...engine.noise import RowNoise
from ...engine.rows import Rows
from ...engine.sampling import Processing
from ...engine.tree import Tree
from ...errors import UnsupportedError
from ...models.hooks import ForwardHooks
from ..context import Context
from ..controller import Candidates, Controller, RoundCost, StepTimes
from ..draft_length import FIRST, ChainAcceptance
from .board import TokenIndices
from .worker import Worker

SWEEPS, BISECTIONS = 12, 14
"""Value iterations for each speed that is tried, as more wholly accepted rounds in a row are rare;
and halvings of the interval of speeds, from plain decoding's to the best chain's."""
REPLAN = 8
"""Rounds between two plans."""
CONTENTION = 1.02
"""What a worker costs the target's rounds by its use of memory, which no forward's time tells."""
LOOK_EVERY = 4
"""Plain rounds of which one lets a resting worker draft a token, which is verified by the way."""
MEASURED = 4
"""Rounds that are timed before the window of `PaperSchedule` is fixed."""


class AutoSchedule:
    """The best number of tokens to verify where some are drafted already, or none.

    Where that gains nothing, rounds are plain and the worker rests, but for a token now and then.

    Args:
        acceptance: of drafts, learnt meanwhile.
        largest: most draft tokens of a round.

    Attributes:
        controller: decides between the plan and plain rounds, by the times of both.
        pays: whether the last plan gains.
    """

    def __init__(self, acceptance: ChainAcceptance, largest: int) -> None:
        self.acceptance, self.largest = acceptance, largest
        self.controller: Controller[int] = Controller("num_draft_tokens")
        self.pays = True
        self._sizes: list[int] = []  # for each number of tokens that are there
        self._speed, self._age, self._rows, self._resting = 0.0, 0, 0, 0

    @property
    def times(self) -> StepTimes:
        """Seconds of rounds and of draft forwards."""
        return self.controller.times

    def sizes(self, have: Sequence[int], stands: Sequence[bool]) -> list[int]:
        """Returns draft tokens to verify of each row, the same of all.

        Args:
            have: tokens of each row that are drafted already.
            stands: whether the draft of each row stood when its last chain was verified.
        """
        controller, times, rows = self.controller, self.times, len(have)
        typical = round(sum(have) / rows)
        self._age += 1
        if times.plain_rounds and (self._age >= REPLAN or rows != self._rows):
            self._age, self._rows = 0, rows
            forwards = [times.round(rows, 1 + size) for size in range(self.largest + 1)]
            self._sizes, self._speed = best_policy(self.acceptance.rate, times.draft(1), forwards)
        size = self._sizes[min(typical, self.largest)] if self._sizes else 0
        if not times.drafts.count:
            size = min(max(FIRST, typical), self.largest)
        tokens = self._speed * times.round(rows, 1) / CONTENTION
        controller.reconsider()  # plain rounds, too, tell what drafts are worth
        candidates = Candidates([size], np.array([1]), np.array([tokens]))
        best = controller.choose(rows, lambda: candidates, may_pause=False)
        if times.plain_rounds:
            self.pays = not times.drafts.count or tokens > 1.0
        return [best or 0] * rows

    def ahead(self) -> int:
        """Returns tokens that the worker may be ahead until the next round."""
        if self.pays:
            self._resting = 0
            return 2 * self.largest
        self._resting += 1
        return int(self._resting % LOOK_EVERY == 0)

    def observe(self, done: RoundCost) -> None:
        """Records that a round was timed."""
        self.controller.observe(done, is_counted=False)


class PaperSchedule:
    """Chooses as the paper's pipeline does (Kong et al. 2025, algorithm 1), whatever it gains.

    A row is in *post-verify* if its last chain was accepted whole and the worker's tokens behind it
    still stand: the target then verifies a window of `gamma` tokens. Otherwise it is in
    *pre-verify*: the target verifies the first token of the new draft alone.

    Args:
        window: `gamma`; `None` is `T_p / T_q`, what a target forward takes in draft forwards (eq.
            6), by the first rounds that are timed.
        largest: most draft tokens of a round.
    """

    def __init__(self, window: int | None, largest: int) -> None:
        self.times, self.largest = StepTimes(), largest
        self.gamma = window

    def sizes(self, have: Sequence[int], stands: Sequence[bool]) -> list[int]:
        """Returns draft tokens to verify of each row, as `AutoSchedule.sizes`."""
        gamma = self.gamma
        if gamma is None:
            gamma, times = min(FIRST, self.largest), self.times
            if times.rounds.count and times.drafts.count:
                ratio = times.round(len(have), 2) / times.draft(1)
                gamma = min(max(round(ratio), 1), self.largest)
                if times.rounds.count >= MEASURED:
                    self.gamma = gamma
        return [gamma if is_post else 1 for is_post in stands]

    def ahead(self) -> int:
        """Returns tokens that the worker may be ahead: this window, and the next."""
        return 2 * self.largest

    def observe(self, done: RoundCost) -> None:
        """Records that a round was timed."""
        self.times.add(done)


def best_policy(
    acceptance: float, draft: float, forwards: Sequence[float]
) -> tuple[list[int], float]:
    """Returns how many to verify for each number `0 .. n` of tokens drafted already, and the
    tokens a second that this gives. Each rejection begins anew with nothing drafted.

    Args:
        acceptance: chance that a draft token is accepted.
        draft: seconds of a draft forward.
        forwards: seconds of the target's over `0 .. n` draft tokens.
    """
    largest, a, t = len(forwards) - 1, acceptance, max(draft, 1e-9)
    sizes, forward = np.arange(largest + 1), np.array(forwards)  # [sizes] each
    tokens = (1 - a ** (sizes + 1)) / (1 - a)
    whole = a ** (sizes + 1)
    waiting = np.maximum(sizes[None, :] - sizes[:, None], 0) * t  # [have, sizes]
    seconds = waiting + forward[None, :]
    left = np.maximum(sizes[:, None] - sizes[None, :], 0)
    drafted = np.floor(forward[None, :] / t).astype(int)
    following = np.clip(left + drafted - 1, 0, largest)  # the token behind them is one
    slow, fast = 1.0 / forward[0], float((tokens / forward).max())
    values = np.zeros((largest + 1, largest + 1))
    for _ in range(BISECTIONS):
        speed = (slow + fast) / 2
        value = np.zeros(largest + 1)
        for _ in range(SWEEPS):
            values = tokens[None] - speed * seconds + whole[None] * value[following]
            value = values.max(1)
        if value[0] > 0:  # better than this speed can be had
            slow = speed
        else:
            fast = speed
    return [int(size) for size in values.argmax(1)], slow


logger = logging.getLogger("sooner")

OnStates = Callable[[Tensor, Tensor], None]
"""Told `(states before the decoder, states after layer L)`, each `[rows, width, hidden]`."""
Listen = Callable[[Callable[[TokenIndices], None]], ForwardHooks]
"""Hooks the target's prefill; its argument is told, in the middle of it, what the draft sees."""


class PrefillTap(ForwardHooks):
    """Hooks on the decoder's first layer and on layer `depth`, for one forward.

    The target's remaining layers hide what `on_states` does, and the worker that it sets going.

    Args:
        decoder: the target's decoder, with a list `layers`.
        depth: how many layers have run when the states are taken (L).
        on_states: called once, in the middle of the prefill.
    """

    def __init__(self, decoder: Any, depth: int, on_states: OnStates) -> None:
        super().__init__()
        self.on_states = on_states
        self.first: Tensor | None = None
        self.before(decoder.layers[0], self._enter)
        self.after(decoder.layers[depth - 1], self._leave)

    def _enter(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if self.first is None:
            cache = cache_of(kwargs)
            if isinstance(cache, SlotCache):
                cache.require_whole("ranking visual tokens")
            self.first = args[0] if args else kwargs["hidden_states"]

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        first, self.first = self.first, None
        if first is None:
            return
        last = output[0] if isinstance(output, tuple) else output
        if first.shape[1] != last.shape[1]:
            raise UnsupportedError(
                f"ranking needs all {first.shape[1]} prompt tokens, but a prefill context left "
                f"{last.shape[1]} of them; rank after an earlier layer, or leave the context"
            )
        self.on_states(first, last)
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
        listen: chooses visual tokens for the draft while the target prefills; `None` keeps all.
        schedule: of the chains.
        acceptance: of drafts, which this run adds to.
    """

    def __init__(
        self,
        context: Context,
        worker: Worker,
        listen: Listen | None,
        schedule: AutoSchedule | PaperSchedule,
        acceptance: ChainAcceptance,
    ) -> None:
        self.context, self.worker, self.board = context, worker, worker.board
        self.forward_spans = worker.board.forward_spans
        context.stats.draft_is_hidden = True
        self.listen, self.schedule, self.acceptance = listen, schedule, acceptance
        self.tap: ForwardHooks | None = None
        self.originals = list(context.rows.active)
        self.pending: list[int] = []  # draft tokens of each row under verification
        self.ran = RoundCost()
        self.token_indices: TokenIndices = []
        self.started = False
        self._forwards = (0, 0)  # of the draft, and their nanoseconds, when last looked at
        self._update = 0  # number of the last one
        self._changed: dict[int, int] = {}  # original row -> update to be acknowledged
        self._warned = False

    def on_verify_start(self, pending: Tree, rows: Rows) -> None:
        self.pending = list(pending.host_sizes or pending.sizes.tolist())
        self.ran = RoundCost(pending.rows, 1 + pending.nodes)
        if self.started:
            return
        self.started = True
        if self.listen is None:
            self._prefill(None)
        else:
            self.tap = self.listen(self._prefill)

    def _prefill(self, indices: TokenIndices | None) -> None:
        self.token_indices = indices or []
        if self.worker.is_usable:
            self.board.prefill(indices)
            self.worker.notify()

    def propose(self, outcome: Outcome) -> Tree:
        if self.tap is not None:
            self.tap.remove()
        self._learn(outcome)
        device = outcome.hidden.device
        if not self.worker.is_usable:
            reason = self.worker.failure
            self._warn(f"the draft worker is gone ({reason}); decoding goes on without it")
            return Tree.empty(len(outcome.new), device)
        stands = self._commit(outcome)
        drafts = self._next_chains(outcome, stands)
        if self.worker.is_usable and not self.worker.patience(self._draft_seconds):
            self._warn(
                "the draft worker does not answer; decoding goes on without it until it does"
            )
        return self._tree(outcome, drafts, device)

    @property
    def _draft_seconds(self) -> float:
        return self.schedule.times.draft(1)

    def _learn(self, outcome: Outcome) -> None:
        forwards, nanoseconds = self.board.forwards()
        before, spent = self._forwards
        if forwards > before:  # those of this round alone: one that was halted tells nothing more
            seconds = (nanoseconds - spent) / (forwards - before) / 1e9
            self.schedule.times.add_draft(1, seconds)
            self._forwards = forwards, nanoseconds
        if outcome.is_first:
            self.worker.opening = self.context.stats.seconds["prefill"]
            return
        ran = self.ran
        outcome.forward_time.then(
            lambda seconds: self.schedule.observe(replace(ran, seconds=seconds))
        )
        self.acceptance.observe(self.pending, outcome.accepted)
        if any(self.pending):
            return
        # A plain round verifies a draft by the way, so that one that gets better is noticed.
        tokens = [
            self._drafted(outcome.rows, row, 1, -len(new)) for row, new in enumerate(outcome.new)
        ]
        right = [int(token == new[:1]) for token, new in zip(tokens, outcome.new, strict=True)]
        self.acceptance.observe(list(map(len, tokens)), right)

    def _commit(self, outcome: Outcome) -> list[bool]:
        """Posts what was committed.

        Returns:
            Whether the draft of each row is what the target generated, and goes on. That of the
            others can't be read until the worker has acknowledged the update.
        """
        rows, new, stands = outcome.rows, {}, []
        self._update += 1
        for row, tokens in enumerate(outcome.new):
            original, position = rows.active[row], len(rows.output(row)) - len(tokens)
            new[original] = position, tokens
            is_drafted = self.board.draft(original, position, len(tokens)) == tokens
            if not is_drafted:
                self._changed[original] = self._update
            stands.append(is_drafted and not outcome.is_first)
        self.board.commit(self._update, new, self.schedule.ahead())
        self.worker.notify()
        return stands

    def _next_chains(self, outcome: Outcome, stands: list[bool]) -> list[list[int]]:
        """Returns the next chains: what is drafted already, and what is worth waiting for."""
        rows, longest = outcome.rows, self.schedule.largest
        limits = [max(min(longest, budget - 1), 0) for budget in outcome.budget]
        have = [len(self._drafted(rows, row, limit)) for row, limit in enumerate(limits)]
        seconds = self._draft_seconds
        is_waited_for = self.worker.patience(seconds) > 0
        if not any(limits) or not (any(have) or is_waited_for):
            return [[] for _ in limits]
        sizes = list(map(min, self.schedule.sizes(have, stands), limits))
        if is_waited_for and any(map(operator.lt, have, sizes)):
            counts = {
                rows.active[row]: len(rows.output(row)) + size for row, size in enumerate(sizes)
            }
            update = max(self._changed.get(row, 0) for row in counts)
            self.worker.wait(counts, update, max(sizes) + 1, seconds)
        return [self._drafted(rows, row, size) for row, size in enumerate(sizes)]

    def _drafted(self, rows: Rows, row: int, limit: int, offset: int = 0) -> list[int]:
        """Returns up to `limit` draft tokens behind the text of an active row, none while they are
        in doubt; `offset` counts from its end."""
        original = rows.active[row]
        if self.board.acknowledged < self._changed.get(original, 0):
            return []
        return self.board.draft(original, len(rows.output(row)) + offset, limit)

    def _tree(self, outcome: Outcome, drafts: list[list[int]], device: torch.device) -> Tree:
        sizes = [len(draft) for draft in drafts]
        nodes = max(sizes)
        if nodes == 0:
            return Tree.empty(len(sizes), device)
        tokens = torch.tensor([draft + [0] * (nodes - len(draft)) for draft in drafts])
        probs = None
        if self.context.processing.do_sample:
            probs = self._probs(outcome.rows, [0] * len(sizes), nodes + 1).to(device)
        return Tree.chain(tokens.to(device), sizes, probs)

    def _probs(self, rows: Rows, offsets: list[int], count: int) -> Tensor:
        """Returns what `count` tokens of each row from an offset behind its text were drawn from,
        `[rows, count, vocab]`."""
        starts = [len(rows.output(row)) + offset for row, offset in enumerate(offsets)]
        places = zip(rows.active, starts, strict=True)
        return torch.stack([self.board.draft_probs(*place, count) for place in places])

    def guess(self, rows: Rows, device: torch.device) -> Guess | None:
        """Returns what the worker drew, meanwhile, for the place behind each row's chain."""
        tokens = [self._drafted(rows, row, 1, size) for row, size in enumerate(self.pending)]
        if not any(tokens):
            return None
        return Guess(
            torch.tensor([token[0] if token else 0 for token in tokens], device=device),
            self._probs(rows, self.pending, 1)[:, 0].to(device),
            torch.tensor([bool(token) for token in tokens], device=device),
        )

    def verify(
        self, tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
    ) -> VerifyResult:
        """Rejection sampling whose bonus token is coupled with the worker's next draft token."""
        if not processing.do_sample:
            return follow_choices(tree, scores, processing, noise)
        p = processing.probabilities(scores)
        guess = None
        if self.worker.is_usable:
            guess = self.guess(self.context.rows, tree.tokens.device)
        if tree.probs is None:
            empty = torch.zeros(tree.rows, 1, p.shape[-1], device=p.device)
            tree = replace(tree, probs=empty)
        return reject_chain(tree, p, noise, guess)

    def select_rows(self, rows: list[int]) -> None:
        self.pending = [self.pending[row] for row in rows]
        self.originals = [self.originals[row] for row in rows]
        self.board.select_rows(self.originals)
        self.worker.notify()

    def close(self) -> None:
        if self.tap is not None:
            self.tap.remove()
        self.board.report(self.context.stats)
        warning = self.worker.close(self._draft_seconds)
        if warning is not None:
            self._warn(warning)

    def _warn(self, text: str) -> None:
        """Reports once that something is wrong with the worker."""
        if not self._warned:
            self._warned = True
            self.context.stats.notes.append(text)
            logger.warning(text)
