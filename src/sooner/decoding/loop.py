"""The one decoding loop.

A round is: take the pending draft, one target forward over the last committed token and the draft,
a pure acceptance rule, commit, next draft. A method is a drafter and a rule; nothing else differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .acceptance import Verdict
from .grid import GridConstraint
from .interface import Drafter, Outcome, Prompt
from .noise import RowNoise
from .rows import Parts, Rows
from .runner import Forward, ModelRunner
from .sampling import Processing, bad_logits
from .stats import APPROXIMATE, Stats
from .stopping import Stopping
from .tree import Tree

Rule = Callable[[Tree, Tensor, Processing, RowNoise], Verdict]
"""Judges a draft: `(tree, processed scores, processing, noise) -> verdict`."""

OnTokens = Callable[[int, list[int], int], None]
"""Told `(original row, new tokens, how many of them were drafted)` after every commit."""


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
        constraint: what each place of a picture allows; `None` for text.
        prefill_chunk: prompt tokens of a row that are prefilled at once; `None` is all of them.
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
    constraint: GridConstraint | None = None
    prefill_chunk: int | None = None


def run(session: Session) -> list[list[int]]:
    """Decode every row to its end; returns the new tokens of each original row."""
    decoding = Decoding(session)
    try:
        for _ in decoding.prefill():
            pass
        while decoding.rows.active:
            decoding.round()
    finally:
        decoding.close()
    return decoding.rows.generated


class Decoding:
    """Rows that decode together; others that were prefilled meanwhile may join them.

    Args:
        session: the rows that it begins with.

    Attributes:
        rows: the batch, in which rows end and join.
        sessions: what each group of rows was admitted with.
        outcome: of the last round; `None` before the target's prefill has ended.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.sessions = session, Parts(session)
        self.rows, self.stats, self.drafter = session.rows, session.stats, session.drafter
        self.noise = session.noise
        self.tree = Tree.empty(self.rows.batch, session.prompt.embeds.device)
        self.outcome: Outcome | None = None

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
            self.noise = self.noise.to(forward.logits.device)
            self.outcome = self._judge(forward, stats.seconds["prefill"], is_first=True)
        if self.rows.active:
            yield from self._timed(self.drafter.begin(self.outcome))

    def _timed(self, steps: Iterator[None]) -> Iterator[None]:
        """The same steps, the time of each counted."""
        while True:
            with self.stats.phase("other"):
                if next(steps, self) is self:
                    return
            yield

    @torch.inference_mode()
    def round(self) -> None:
        """Draft, verify, judge and commit, for every row."""
        stats, outcome = self.stats, self.outcome
        assert outcome is not None
        with stats.phase("other"):
            with stats.phase("draft"):
                self.tree = self.drafter.propose(outcome)
                roots = _roots(outcome)
            handed = stats.clock()
            self.drafter.on_verify_start(self.tree, self.rows)
            start = stats.clock()
            with stats.phase("verify"):
                forward = self.session.target.forward_tree(roots, self.tree)
                seconds = stats.clock() - start
            stats.verify_seconds[1 + self.tree.nodes].append(seconds)
            self.outcome = self._judge(forward, seconds)
            self.outcome.round_seconds = stats.clock() - handed

    @torch.inference_mode()
    def join(self, other: Decoding) -> int:
        """Let the rows of `other`, whose prefill has ended, decode behind these.

        `other` is used up. Returns the number of its first original row here.

        Raises:
            UnsupportedError: the method, or what it draws, needs a batch of its own.
        """
        assert self.outcome is not None
        assert other.outcome is not None
        session, model = self.session, type(self.session.target.adapter.model).__name__
        if session.constraint is not None or self.stats.deviation is not None:
            raise UnsupportedError(
                f"{self.stats.method} on {model} decodes only "
                "rows that are admitted together; give such requests a batch of their own"
            )
        if other.rows.active:
            session.target.cache.check_join(other.session.target.cache)
            self.drafter.join(other.drafter)
            session.target.join(other.session.target)
            self.outcome.join(other.outcome)
            self.noise = self.outcome.noise
        else:
            other.drafter.close()
        own, theirs = self.rows.batch, other.rows.batch
        session.stopping.batch = session.stopping.batch or own
        for one in other.sessions.all:
            one.stopping.first += own
            one.stopping.batch = one.stopping.batch or theirs
        self.sessions.join(other.sessions, own, theirs)
        session.processing.join(other.session.processing, own, theirs)
        self.stats.join(other.stats, own)
        return self.rows.join(other.rows)

    def release(self, original: int) -> list[int]:
        """Forget a row that has ended; returns what it generated."""
        self.sessions.release(original)
        self.session.processing.release(original)
        return self.rows.release(original)

    @torch.inference_mode()
    def drop(self, original: int) -> None:
        """End a row before its time; other rows go on as they were."""
        finished = [row == original for row in self.rows.active]
        if any(finished) and self.outcome is not None:
            self.outcome = self._without(self.outcome, finished)

    def close(self) -> None:
        """Release what the drafter holds, and finish the statistics."""
        self.stats.close_runs()
        self.stats.cache_bytes = self.session.target.cache.nbytes()
        self.drafter.close()

    def _judge(self, forward: Forward, seconds: float, is_first: bool = False) -> Outcome:
        """Apply the rule, commit what it accepted, and drop the rows that ended."""
        session, rows, tree, logits = self.session, self.rows, self.tree, forward.logits
        self.stats.nfe += 1
        if session.constraint is not None and session.constraint.binds:
            logits = session.constraint(logits, rows, tree)
        scores = session.processing.scores(logits, lambda: rows.block_prefixes(tree), rows.active)
        verdict = session.rule(tree, scores, session.processing, self.noise)
        broken = _broken(session.processing, scores, verdict, tree)
        paths, new, offered = _on_host(tree, verdict, broken)
        finished = [
            self._commit_row(row, offered[row], paths[row], new[row], is_first)
            for row in range(len(new))
        ]
        if not is_first:
            session.target.commit(paths)
        self.noise = self.noise.advance(1 + verdict.accepted)
        outcome = Outcome(
            rows=rows,
            new=new,
            accepted=[len(path) - 1 for path in paths],
            budget=[self._budget(row) for row in range(len(new))],
            seconds=seconds,
            hidden=forward.hidden,
            scores=scores,
            path=paths,
            noise=self.noise,
            is_first=is_first,
        )
        return self._without(outcome, finished) if any(finished) else outcome

    def _without(self, outcome: Outcome, finished: list[bool]) -> Outcome:
        """Drop rows from the batch, and from what its last round gave."""
        stay = self.rows.end(finished)
        if stay:
            self.session.target.keep_rows(stay)
            self.drafter.keep_rows(stay)
        outcome = outcome.of(stay)
        self.noise = outcome.noise
        return outcome

    def _budget(self, row: int) -> int:
        """How many more tokens active row `row` may say."""
        session, _ = self.sessions.of(self.rows.active[row])
        return session.stopping.budget(len(self.rows.said(row)))

    def _commit_row(
        self, row: int, offered: tuple[int, int], path: list[int], new: list[int], is_first: bool
    ) -> bool:
        """Say what the row may still say of `new`; trims `path` and `new`, returns whether it
        ended.

        Args:
            offered: nodes and levels of the row's tree.
        """
        rows, stats = self.rows, self.stats
        original = rows.active[row]
        session, own = self.sessions.of(original)
        kept, ended = session.stopping.cut(rows, row, new)
        del new[len(kept) :]
        del path[1 + len(kept) :]
        accepted = len(path) - 1
        rows.generated[original] += kept
        stats.tokens += len(kept)
        if not is_first:
            nodes, levels = offered
            stats.record_step(original, nodes, accepted, len(kept), levels)
        if session.on_tokens is not None and kept:
            session.on_tokens(own, kept, accepted)
        return ended


def _on_host(
    tree: Tree, verdict: Verdict, broken: Tensor
) -> tuple[list[list[int]], list[list[int]], list[tuple[int, int]]]:
    """Accepted block entries (root first), new tokens, offered nodes and levels of each row, in
    one transfer.

    Raises:
        BadLogitsError: a row is `broken`.
    """
    on_path = tree.tokens.gather(1, (verdict.path - 1).clamp(min=0)) if tree.nodes else verdict.path
    levels = tree.sizes if tree.is_chain else tree.levels()
    numbers = [broken, verdict.accepted, verdict.bonus, tree.sizes, levels]
    table = torch.cat([torch.stack(numbers, 1), verdict.path, on_path], 1).tolist()
    if any(line[0] for line in table):
        raise bad_logits()
    paths, new, width = [], [], verdict.path.shape[1]
    for _, accepted, bonus, _, _, *rest in table:
        paths.append([0, *rest[:accepted]])
        new.append([*rest[width : width + accepted], bonus])
    return paths, new, [(line[3], line[4]) for line in table]


def _broken(processing: Processing, scores: Tensor, verdict: Verdict, tree: Tree) -> Tensor:
    """Rows whose new token can't be trusted: its scores, or what their draft was drawn from, are
    no numbers. `[rows]`, 0 or 1."""
    ends = torch.cat([torch.zeros_like(verdict.bonus)[:, None], verdict.path], 1)
    last = ends.gather(1, verdict.accepted[:, None])[..., None]  # [rows, 1, 1]
    broken = processing.broken(scores.gather(1, last.expand(-1, -1, scores.shape[2]))[:, 0])
    if tree.probs is not None:
        # A softmax spreads a NaN everywhere; a node was drawn from what stands at its parent.
        drawn = tree.probs[..., 0].isnan().gather(1, tree.parents + 1)
        broken = broken | (drawn & tree.valid()).any(1)
    return broken.long()


def _roots(outcome: Outcome) -> Tensor:
    """The last committed token of each row, `[rows]`."""
    last = [new[-1] for new in outcome.new]
    return torch.tensor(last, device=outcome.hidden.device)
