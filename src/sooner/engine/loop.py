"""The one decoding loop.

A round is: take the pending draft, one target forward over the last committed token and the draft,
a pure acceptance rule, commit, next draft. A method is a drafter and a rule; nothing else differs.
The middle of it (forward, verify, commit) is a step on the device, which never waits for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import UnsupportedError
from .acceptance import Rule as Rule  # of a run, as methods import it
from .acceptance import VerifyResult
from .grid import GridConstraint
from .interface import CommittedBlock, Drafter, Outcome, Prompt
from .noise import RowNoise
from .rows import Reason, Rows, RowTensor, Stopping, cut_rows, in_use
from .runner import Forward, ModelRunner
from .sampling import Processing, bad_logits
from .stats.run import APPROXIMATE, LOST, NO_TIME, DraftCount, Interval, Stats
from .tree import Paths, Tree

OnTokens = Callable[[int, list[int], int], None]
"""Told `(original row, new tokens, how many of them were drafted)` after every commit."""

OnLogits = Callable[[int, list[int], Tensor], None]
"""Told `(original row, new tokens, the model's logits of each [tokens, vocab])`."""

STOP_IDS = 4
"""Stop ids of a row that there is room for at least, so that a row with more moves no tensor."""


@dataclass
class Session:
    """Everything one run of the loop needs.

    Attributes:
        target: the model that decides, with an empty cache.
        prompt: its embedded prompts.
        rows: the batch's bookkeeping.
        drafter, rule: the method.
        processing: the processed distribution.
        stopping: when rows end.
        stats: where counts and times go.
        noise: the random numbers of the rows that still decode, moved on by every commit.
        on_tokens: called after each commit, for streaming.
        on_logits: told the logits of what is committed, before `on_tokens`.
        drafts: counted as rounds go, before `on_tokens`.
        max_draft: most draft tokens of a round, on a path; 0 decodes plainly.
        constraint: what each place of a picture allows; `None` for text.
        prefill_chunk: prompt tokens of a row that are prefilled at once; `None` is all of them.
        graphs: launches the steps (`graphs.StepGraphs`); `None` launches each operation.
        check: decodes blocks again now and then (`block_check.BlockCheck`); `None` does not.
    """

    target: ModelRunner
    prompt: Prompt
    rows: Rows
    drafter: Drafter
    rule: Rule
    processing: Processing
    stopping: Stopping
    stats: Stats
    noise: RowNoise
    on_tokens: OnTokens | None = None
    on_logits: OnLogits | None = None
    drafts: DraftCount = field(default_factory=DraftCount)
    max_draft: int | None = None
    constraint: GridConstraint | None = None
    prefill_chunk: int | None = None
    graphs: Any = None
    check: Any = None


def run(session: Session) -> list[list[int]]:
    """Decode every row to its end; returns the new tokens of each original row."""
    decoding = Decoding(session)
    try:
        for _ in decoding.prefill():
            pass
        decoding.raise_failure()
        while decoding.rows.active:
            decoding.round()
            decoding.raise_failure()
    finally:
        decoding.close()
    return decoding.rows.generated


class Decoding:
    """Rows that decode together; others that were prefilled meanwhile may join them.

    Args:
        session: the rows that it begins with.
        batch: what they are to join, in whose cache they are prefilled if it has room.

    Attributes:
        rows: the batch, in which rows end and join.
        outcome: of the last round; `None` before the target's prefill has ended.
        failed: original rows that an error of their own has ended: bad logits, or what a callback
            or criterion of theirs raised. Others go on.
    """

    def __init__(self, session: Session, batch: Decoding | None = None) -> None:
        self.session = session
        self._joined: dict[int, tuple[Session, int]] = {}  # of rows that joined
        self.rows, self.stats, self.drafter = session.rows, session.stats, session.drafter
        limit = session.stopping.limit
        cache = session.target.cache
        if batch is not None:
            cache.borrow(batch.session.target.cache, session.prompt.rows)
        elif session.graphs is not None:
            session.graphs.open(session.target, session.prompt.rows)
        eos, limit = sorted(session.stopping.eos), 1 << 30 if limit is None else limit
        self.state = RowState(session.noise, eos, limit, cache.max_rows)
        self.tree = Tree.empty(self.rows.batch, session.prompt.embeds.device)
        self.outcome: Outcome | None = None
        self.failed: dict[int, Exception] = {}

    @property
    def sessions(self) -> list[Session]:
        """Returns the session of every group of rows that has some left, and the first one."""
        joined = (session for session, _ in self._joined.values())
        return list({id(session): session for session in (self.session, *joined)}.values())

    def session_of(self, original: int) -> tuple[Session, int]:
        """Returns what a row was admitted with, and its number among the rows admitted with it."""
        return self._joined.get(original, (self.session, original))

    def raise_failure(self) -> None:
        """Raises the error of the first row that failed, if one did."""
        for error in self.failed.values():
            raise error

    @torch.inference_mode()
    def prefill(self) -> Iterator[None]:
        """Run the prompts, a chunk at a time, and choose each row's first token.

        Yields between two chunks, where other rows may decode.
        """
        session, stats = self.session, self.stats
        with stats.phase("other"):
            self.drafter.on_verify_start(self.tree, self.rows)
            chunks = session.target.prefill_chunks(
                session.prompt, session.prefill_chunk, self.drafter.on_prefill
            )
        while True:
            with stats.phase("prefill"):
                forward = next(chunks)
            if forward is not None:
                break
            yield
        with stats.phase("other"):
            for text in session.target.cache.approximations:
                stats.mode = APPROXIMATE
                stats.note(text)
            session.prompt.release()
            verified = verify(
                self.tree, self._score(forward.logits), session.rule, session.processing, self.state
            )
            self.outcome = self._commit(verified, forward, NO_TIME, is_first=True)
        if self.rows.active:
            yield from self._timed(self.drafter.begin(self.outcome))

    def _timed(self, steps: Iterator[None]) -> Iterator[None]:
        """Yields the same steps, the time of each counted."""
        while True:
            with self.stats.phase("other"):
                if next(steps, self) is self:
                    return
            yield

    @torch.inference_mode()
    def round(self) -> None:
        """Draft, verify, verify and commit, for every row."""
        stats, outcome = self.stats, self.outcome
        assert outcome is not None
        launcher = self.session.graphs
        unsettled = 0 if launcher is None else launcher.unsettled
        with stats.phase("other"):
            if self.session.check is not None and self.session.check.run(self):
                outcome.budget = [self._budget(row) for row in range(len(outcome.budget))]
            with stats.phase("draft"):
                self.tree = self.drafter.propose(outcome)
            handed = stats.work_mark()
            self.drafter.on_verify_start(self.tree, self.rows)
            started = stats.mark()
            ended = [started]
            session = self.session
            take = step if launcher is None else launcher.step
            verified, forward = take(
                session.target, self.tree, session.rule, session.processing, self.state,
                self._score, lambda: ended.append(stats.mark()),
            )  # fmt: skip
            verify = stats.between(started, ended[-1])
            stats.move("verify", verify)
            verify.then(stats.verify_seconds[1 + self.tree.nodes].append)
            is_typical = launcher is None or launcher.unsettled == unsettled
            # Controllers count the cost of typical rounds alone.
            self.outcome = self._commit(verified, forward, verify if is_typical else LOST)
            whole = stats.between(handed, stats.work_mark())
            self.outcome.round_time = whole if is_typical else LOST

    @torch.inference_mode()
    def merge(self, other: Decoding) -> int:
        """Let the rows of `other`, whose prefill has ended, decode behind these.

        `other` is used up. Returns the number of its first original row here.

        Raises:
            UnsupportedError: the method, or what it draws, needs a batch of its own.
        """
        assert self.outcome is not None
        assert other.outcome is not None
        session, model = self.session, type(self.session.target.adapter.model).__name__
        if session.constraint is not None:
            raise UnsupportedError(
                f"{self.stats.method} on {model} decodes only "
                "rows that are admitted together; give such requests a batch of their own"
            )
        if other.rows.active:
            session.target.cache.check_join(other.session.target.cache)
            self.drafter.merge(other.drafter)
            session.target.merge(other.session.target)
            self.outcome.merge(other.outcome)
            self.state.merge(other.state)
            session.processing.merge(other.session.processing)
            self.outcome.noise = self.state.noise
        else:
            other.drafter.close()
        count, other_count = self.rows.batch, other.rows.batch
        session.stopping.batch = session.stopping.batch or count
        for joining in other.sessions:
            joining.stopping.first += count
            joining.stopping.batch = joining.stopping.batch or other_count
        self._joined |= {count + row: other.session_of(row) for row in range(other_count)}
        self.failed |= {count + row: error for row, error in other.failed.items()}
        self.stats.merge(other.stats, count)
        return self.rows.merge(other.rows)

    def release(self, original: int) -> list[int]:
        """Forget a row that has ended; returns what it generated."""
        self._joined.pop(original, None)
        self.failed.pop(original, None)
        self.stats.close_run(original)
        return self.rows.release(original)

    @torch.inference_mode()
    def drop(self, original: int) -> None:
        """End a row before its time; other rows go on as they were."""
        finished = [row == original for row in self.rows.active]
        if any(finished) and self.outcome is not None:
            self.rows.reasons[original] = "cancelled"
            self.outcome = self._without(self.outcome, finished)

    def close(self) -> None:
        """Release what the drafter holds, and finish the statistics."""
        self.stats.close_runs()
        self.stats.cache_bytes = self.session.target.cache.nbytes()
        if self.session.graphs is not None:
            self.session.graphs.tell(self.stats)
        self.session.target.cache.close()
        self.drafter.close()
        if self.session.graphs is not None:
            self.session.graphs.release(self.session.target, self.state)
        self.stats.timeline.close()

    def _score(self, logits: Tensor) -> Tensor:
        """Returns processed scores of the block under way, `[rows, 1 + nodes, vocab]`."""
        session, rows, tree = self.session, self.rows, self.tree
        if session.constraint is not None and session.constraint.binds:
            logits = session.constraint(logits, rows, tree)
        return session.processing.scores(logits, lambda: Paths.of(tree), rows.prefix)

    def _commit(
        self, verified: VerifiedBlock, forward: Forward, time: Interval, is_first: bool = False
    ) -> Outcome:
        """Tell the host what a step decided, and drop the rows that ended or failed."""
        rows, target = self.rows, self.session.target
        self.stats.nfe += 1
        reports = read(verified.report, verified.depth)
        self.stats.timeline.settle()  # the device has come this far
        if not is_first:
            target.note_commit([len(report.path) for report in reports])
        finished = [
            self._commit_row(row, row_report, forward.logits, is_first)
            for row, row_report in enumerate(reports)
        ]
        if self.session.check is not None and not is_first:
            self.session.check.add_round(rows.active, reports, forward.logits, self.tree)
        outcome = Outcome(
            rows=rows, new=[report.new for report in reports],
            accepted=[len(report.path) - 1 for report in reports],
            budget=[self._budget(row) for row in range(len(reports))], forward_time=time,
            hidden=forward.hidden, scores=verified.scores, path=[report.path for report in reports],
            committed=verified.committed, noise=self.state.noise, is_first=is_first,
        )  # fmt: skip
        return self._without(outcome, finished) if any(finished) else outcome

    def _without(self, outcome: Outcome, finished: list[bool]) -> Outcome:
        """Drop rows from the batch, and from what its last round gave."""
        cache = self.session.target.cache
        cache.release({row: self.rows.output(row) for row, ended in enumerate(finished) if ended})
        stay = self.rows.end(finished)
        if stay:
            self.session.target.select_rows(stay)
            self.drafter.select_rows(stay)
            self.session.processing.select_rows(stay)
            self.state.select_rows(torch.tensor(stay, device=self.state.roots.device))
        return replace(outcome.of(stay), noise=self.state.noise)

    def _budget(self, row: int) -> int:
        """Returns how many tokens active row `row` may generate in the next round."""
        session, _ = self.session_of(self.rows.active[row])
        left = session.stopping.budget(len(self.rows.output(row)))
        return left if session.max_draft is None else min(left, 1 + session.max_draft)

    def _commit_row(self, row: int, report: RowReport, logits: Tensor, is_first: bool) -> bool:
        """Commit the tokens that the row may still generate; returns whether it ended."""
        original = self.rows.active[row]
        try:
            reason = self._emit(row, report, logits, is_first)
        except Exception as error:  # its callback's, its criteria's or its logits': others go on
            self.failed[original], reason = error, "error"
        if reason is not None:
            self.rows.reasons[original] = reason
        return reason is not None

    def _emit(self, row: int, report: RowReport, logits: Tensor, is_first: bool) -> Reason | None:
        """Commit a row's new tokens on the host; trims the report, returns why the row ended.

        The device has cut the tokens at its limit and its stop ids; criteria of the caller's own,
        which only the host can ask, may cut more. Such a row has ended, so nothing is taken back.

        Raises:
            BadLogitsError: the scores of the row are no numbers.
        """
        if report.is_broken:
            if (pages := self.session.target.cache.pages) is not None:
                pages.forget(row)  # what it holds may be no numbers either
            failed = self.session.processing.params_of(row).failed
            raise failed[0] if failed else bad_logits()
        rows, stats = self.rows, self.stats
        original = rows.active[row]
        session, index = self.session_of(original)
        tokens, ended = report.new, None
        if report.ended:
            ended = session.stopping.reason(tokens)
        if session.stopping.asks_host:
            tokens, ended = session.stopping.cut(rows, row, report.new)
            del report.new[len(tokens) :]
            del report.path[1 + len(tokens) :]
        accepted = len(report.path) - 1
        rows.generated[original] += tokens
        stats.tokens += len(tokens)
        if not is_first:
            stats.record_step(original, report.nodes, accepted, len(tokens), report.levels)
            session.drafts.note(report.nodes)
        if session.on_logits is not None and tokens:
            session.on_logits(index, tokens, logits[row, report.path[: len(tokens)]])
        if session.on_tokens is not None and tokens:
            session.on_tokens(index, tokens, accepted)
        return ended


class RowState:
    """What a step knows of each row; tensors on the target's device, which stay where they are.

    Args:
        noise: random numbers; this state has places of its own, which a step moves on.
        stop_ids: ids that end a row.
        limit: tokens that a row may generate.
        max_rows: rows that there is room for.

    Attributes:
        roots: the last committed token, which the next step forwards, `[rows]`.
        noise: random numbers, at the number of tokens said.
        stop_ids: ids that end a row, padded with -1, `[rows, ids]`.
        budget: tokens that a row may still generate, `[rows]`.
    """

    def __init__(
        self, noise: RowNoise, stop_ids: Sequence[int], limit: int, max_rows: int = 1
    ) -> None:
        rows, device = len(noise.seeds), noise.seeds.device
        none = torch.zeros(rows, dtype=torch.long, device=device)
        width = max(STOP_IDS, 1 << (len(stop_ids) - 1).bit_length())
        listed = [*stop_ids, *[-1] * (width - len(stop_ids))]
        ids = torch.tensor([listed], dtype=torch.long, device=device).expand(rows, -1)
        each = (none, noise.seeds, noise.places, ids, torch.full_like(none, limit))
        self._each = [RowTensor(tensor, max_rows) for tensor in each]
        self.use(rows)

    def use(self, rows: int) -> None:
        """Let the first so many rows be in use."""
        self.roots, seeds, places, self.stop_ids, self.budget = (
            tensor.use(rows) for tensor in self._each
        )
        self.noise = RowNoise(seeds, places)

    def using(self, rows: int) -> AbstractContextManager[None]:
        """Let the first so many rows be in use meanwhile."""
        return in_use(self, rows, len(self.roots))

    @property
    def buffers(self) -> list[Tensor]:
        """What stays where it is as long as no row needs more room."""
        return [tensor.whole for tensor in self._each]

    def move_to(self, other: RowState) -> None:
        """Lie where another state did, whose rows are gone."""
        other.select_rows(torch.empty(0, dtype=torch.long, device=self.roots.device))
        other.merge(self)
        self._each = other._each
        self.use(len(other.roots))

    def select_rows(self, rows: Tensor) -> None:
        """Drop every row but those with these indices, `[kept]`."""
        for tensor in self._each:
            tensor.select_rows(rows)
        self.use(len(rows))

    def merge(self, other: RowState) -> None:
        """Put the rows of `other` behind these."""
        widest = max(self.stop_ids.shape[1], other.stop_ids.shape[1])
        ids = [
            pad(item, (0, widest - item.shape[1]), value=-1)
            for item in (self.stop_ids, other.stop_ids)
        ]
        if widest > self.stop_ids.shape[1]:
            self._each[3] = RowTensor(ids[0], len(self._each[3].whole))
        values = (other.roots, other.noise.seeds, other.noise.places, ids[1], other.budget)
        for item, joining in zip(self._each, values, strict=True):
            item.merge(joining)
        self.use(len(self.roots) + len(other.roots))


@dataclass(frozen=True)
class VerifiedBlock:
    """What a step has decided, for every row.

    Attributes:
        report: what the host reads, in one tensor; see `read`. `[rows, columns]`.
        scores: processed scores of the block, `[rows, 1 + nodes, vocab]`.
        committed: what the rows say and keep.
    """

    report: Tensor
    scores: Tensor
    committed: CommittedBlock

    @property
    def depth(self) -> int:
        """Returns the most entries of a path, the root not counted."""
        return self.committed.path.shape[1]


@dataclass(frozen=True)
class RowReport:
    """The part of a report that belongs to one row, on the host.

    Attributes:
        is_broken: its new token can't be trusted: scores are no numbers.
        nodes, levels: of the draft that was verified.
        ended: an end-of-sequence id or the limit ended it.
        path: accepted block entries, the root's 0 first, as far as the row says them.
        new: the tokens it says.
    """

    is_broken: bool
    nodes: int
    levels: int
    ended: bool
    path: list[int]
    new: list[int]


def verify(
    tree: Tree, scores: Tensor, rule: Rule, processing: Processing, state: RowState
) -> VerifiedBlock:
    """Apply the rule, and cut at each row's end; moves `state` on.

    Args:
        tree: the draft.
        scores: processed, of its block, `[rows, 1 + nodes, vocab]`.
    """
    verdict = rule(tree, scores, processing, state.noise)
    if not tree.nodes:
        return _judge_plain(tree, scores, verdict, processing, state)
    drafted = tree.tokens.gather(1, (verdict.path - 1).clamp(min=0))
    committed, ended = cut_rows(
        drafted, verdict.accepted, verdict.bonus, state.stop_ids, state.budget
    )
    # Where the last token is a draft's own, the row ended within what was accepted.
    last = pad(drafted, (0, 1)).scatter(1, verdict.accepted[:, None], verdict.bonus[:, None])
    state.roots.copy_(last.gather(1, (committed - 1).clamp(min=0)[:, None])[:, 0])
    broken = _broken(processing, scores, verdict, tree)
    levels = tree.sizes if tree.is_chain else tree.levels()
    head = [broken, tree.sizes, levels, ended.long(), verdict.accepted, committed]
    report = torch.cat([torch.stack(head, 1), verdict.path, drafted, verdict.bonus[:, None]], 1)
    state.budget.sub_(committed)
    processing.count(last, committed)
    state.noise.places.add_(1 + verdict.accepted)
    entries = 1 + torch.minimum(verdict.accepted, committed)
    return VerifiedBlock(report, scores, CommittedBlock(last, verdict.path, entries))


def _judge_plain(
    tree: Tree, scores: Tensor, verdict: VerifyResult, processing: Processing, state: RowState
) -> VerifiedBlock:
    """`verify` where nothing was drafted: the same in a fifth of the operations."""
    counts, token = tree.sizes + 1, verdict.bonus  # a token each
    ended = (token[:, None] == state.stop_ids).any(1) | (state.budget <= 1)
    broken = processing.broken(scores[:, 0])
    report = [broken, tree.sizes, tree.sizes, ended, tree.sizes, counts, token]
    state.roots.copy_(token)
    state.budget.sub_(1)
    processing.count(token[:, None], counts)
    state.noise.places.add_(1)
    whole = torch.cat([column[:, None] for column in report], 1)  # which promotes the flags
    return VerifiedBlock(whole, scores, CommittedBlock(token[:, None], verdict.path, counts))


def step(
    target: ModelRunner, tree: Tree, rule: Rule, processing: Processing, state: RowState,
    score: Callable[[Tensor], Tensor], on_forward: Callable[[], None] = lambda: None,
) -> tuple[VerifiedBlock, Forward]:  # fmt: skip
    """Forward the roots and the draft behind them, verify it, and commit what is accepted.

    Args:
        score: processes logits, `[rows, 1 + nodes, vocab]`.
        on_forward: called between the forward and what follows, to measure it.
    """
    forward = target.forward_tree(state.roots, tree)
    on_forward()
    verified = verify(tree, score(forward.logits), rule, processing, state)
    committed = verified.committed
    target.commit_path(committed.path, committed.entries, is_chain=tree.is_chain)
    return verified, forward


def read(report: Tensor, depth: int) -> list[RowReport]:
    """Returns the host's copy of a report, in one transfer.

    Args:
        report: `[rows, columns]`.
        depth: columns of its paths.
    """
    rows = []
    for broken, nodes, levels, ended, accepted, count, *rest in report.tolist():
        new = [*rest[depth : depth + accepted], rest[-1]][:count]
        path = [0, *rest[: min(accepted, count)]]
        rows.append(RowReport(bool(broken), nodes, levels, bool(ended), path, new))
    return rows


def _broken(processing: Processing, scores: Tensor, verdict: VerifyResult, tree: Tree) -> Tensor:
    """Returns rows whose new token can't be trusted: its scores, or what their draft was drawn
    from, are no numbers. `[rows]`, 0 or 1.
    """
    ends = pad(verdict.path, (1, 0))
    last = ends.gather(1, verdict.accepted[:, None])[..., None]  # [rows, 1, 1]
    broken = processing.broken(scores.gather(1, last.expand(-1, -1, scores.shape[2]))[:, 0])
    if tree.probs is not None:
        # A softmax spreads a NaN everywhere; a node was drawn from what stands at its parent.
        drawn = tree.probs[..., 0].isnan().gather(1, tree.parents + 1)
        broken = broken | (drawn & tree.valid()).any(1)
    return broken.long()
