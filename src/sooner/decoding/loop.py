"""The one decoding loop.

A round is: take the pending draft, one target forward over the last committed token and the draft,
a pure acceptance rule, commit, next draft. A method is a drafter and a rule; nothing else differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .acceptance import Verdict
from .grid import GridConstraint
from .interface import Drafter, Outcome, Prompt
from .noise import RowNoise
from .rows import Rows
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


@torch.inference_mode()
def run(session: Session) -> list[list[int]]:
    """Decode every row to its end; returns the new tokens of each original row."""
    try:
        return _run(session)
    finally:
        session.drafter.close()


def _run(session: Session) -> list[list[int]]:
    rows, stats = session.rows, session.stats
    tree = Tree.empty(rows.batch, session.prompt.embeds.device)
    began = stats.clock()
    session.drafter.on_verify_start(tree, rows)
    with stats.phase("prefill"):
        forward = session.target.prefill(
            session.prompt, session.prefill_chunk, session.drafter.on_prefill
        )
    for text in session.target.cache.approximations:
        stats.mode = APPROXIMATE
        stats.note(text)
    session.prompt.release()
    session.noise = session.noise.to(forward.logits.device)
    seconds = stats.seconds["prefill"]
    is_first = True
    while True:
        stats.nfe += 1
        outcome = _judge(session, tree, forward, seconds, is_first)
        if not rows.active:
            break
        with stats.phase("draft"):
            tree = session.drafter.propose(outcome)
            roots = _roots(outcome)
        is_first = False
        session.drafter.on_verify_start(tree, rows)
        start = stats.clock()
        forward = session.target.forward_tree(roots, tree)
        seconds = stats.clock() - start
        stats.seconds["verify"] += seconds
        stats.verify_seconds[1 + tree.nodes].append(seconds)
    stats.close_runs()
    stats.cache_bytes = session.target.cache.nbytes()
    known = sum(stats.seconds[name] for name in ("prefill", "draft_prefill", "draft", "verify"))
    stats.seconds["other"] += stats.clock() - began - known
    return rows.generated


def _judge(
    session: Session, tree: Tree, forward: Forward, seconds: float, is_first: bool
) -> Outcome:
    """Apply the rule, commit what it accepted, and drop the rows that ended."""
    rows, logits = session.rows, forward.logits
    if session.constraint is not None and session.constraint.binds:
        logits = session.constraint(logits, rows, tree)
    scores = session.processing.scores(logits, lambda: rows.block_prefixes(tree), rows.active)
    verdict = session.rule(tree, scores, session.processing, session.noise)
    paths, new, offered = _on_host(
        tree, verdict, _broken(session.processing, scores, verdict, tree)
    )
    finished = [
        _commit_row(session, row, offered[row], paths[row], new[row], is_first)
        for row in range(len(new))
    ]
    if not is_first:
        session.target.commit(paths)
    session.noise = session.noise.advance(1 + verdict.accepted)
    if any(finished):
        stay = rows.end(finished)
        paths, new = [paths[row] for row in stay], [new[row] for row in stay]
        if stay:
            index = torch.tensor(stay, device=scores.device)
            scores, forward = scores[index], Forward(forward.logits, forward.hidden[index])
            session.noise = session.noise.keep_rows(index)
            session.target.keep_rows(stay)
            session.drafter.keep_rows(stay)
    return Outcome(
        rows=rows,
        new=new,
        accepted=[len(path) - 1 for path in paths],
        budget=[session.stopping.budget(len(rows.said(row))) for row in range(len(new))],
        seconds=seconds,
        hidden=forward.hidden,
        scores=scores,
        path=paths,
        noise=session.noise,
        is_first=is_first,
    )


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


def _commit_row(
    session: Session,
    row: int,
    offered: tuple[int, int],
    path: list[int],
    new: list[int],
    is_first: bool,
) -> bool:
    """Say what the row may still say of `new`; trims `path` and `new`, returns whether it ended.

    Args:
        offered: nodes and levels of the row's tree.
    """
    rows, stats = session.rows, session.stats
    kept, ended = session.stopping.cut(rows, row, new)
    del new[len(kept) :]
    del path[1 + len(kept) :]
    accepted = len(path) - 1
    original = rows.active[row]
    rows.generated[original] += kept
    stats.tokens += len(kept)
    if not is_first:
        nodes, levels = offered
        stats.record_step(original, nodes, accepted, len(kept), levels)
    if session.on_tokens is not None and kept:
        session.on_tokens(original, kept, accepted)
    return ended


def _roots(outcome: Outcome) -> Tensor:
    """The last committed token of each row, `[rows]`."""
    last = [new[-1] for new in outcome.new]
    return torch.tensor(last, device=outcome.hidden.device)
