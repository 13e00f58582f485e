"""The one decoding loop.

A round is: take the pending draft, one target forward over the last committed token and the draft,
a pure acceptance rule, commit, next draft. A method is a drafter and a rule; nothing else differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .acceptance import Rule as Rule  # of a run, as methods import it
from .grid import GridConstraint
from .interface import Drafter, Outcome, Prompt
from .noise import RowNoise
from .rows import Parts, Reason, Rows, Stopping
from .runner import Forward, ModelRunner
from .sampling import Processing, bad_logits
from .stats.run import APPROXIMATE, LOST, NO_TIME, DraftCount, Interval, Stats
from .step import RowReport, RowState, VerifiedBlock, read, step, verify
from .tree import Paths, Tree

OnTokens = Callable[[int, list[int], int], None]
"""Told `(original row, new tokens, how many of them were drafted)` after every commit."""

OnLogits = Callable[[int, list[int], Tensor], None]
"""Told `(original row, new tokens, the model's logits of each [tokens, vocab])`."""


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
        beside: what they are to join, in whose cache they are prefilled if it has room.

    Attributes:
        rows: the batch, in which rows end and join.
        sessions: what each group of rows was admitted with.
        outcome: of the last round; `None` before the target's prefill has ended.
        failed: original rows that an error of their own has ended: bad logits, or what a callback
            or criterion of theirs raised. Others go on.
    """

    def __init__(self, session: Session, batch: Decoding | None = None) -> None:
        self.session, self.sessions = session, Parts(session)
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
        for part in other.sessions.all:
            part.stopping.first += count
            part.stopping.batch = part.stopping.batch or other_count
        self.sessions.merge(other.sessions, count, other_count)
        self.failed |= {count + row: error for row, error in other.failed.items()}
        self.stats.merge(other.stats, count)
        return self.rows.merge(other.rows)

    def release(self, original: int) -> list[int]:
        """Forget a row that has ended; returns what it generated."""
        self.sessions.release(original)
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
        outcome = Outcome(
            rows=rows,
            new=[report.new for report in reports],
            accepted=[len(report.path) - 1 for report in reports],
            budget=[self._budget(row) for row in range(len(reports))],
            forward_time=time,
            hidden=forward.hidden,
            scores=verified.scores,
            path=[report.path for report in reports],
            committed=verified.committed,
            noise=self.state.noise,
            is_first=is_first,
        )
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
        session, _ = self.sessions.of(self.rows.active[row])
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
        session, index = self.sessions.of(original)
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
