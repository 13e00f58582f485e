"""Recomputes a committed block now and then, plainly, so that a bug of a method, a mask or a kernel
is noticed while requests are served, and not by their readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..checks import check_whole
from ..errors import UnsupportedError
from ..parity import compare, rounding
from .stats.run import RELAXED
from .tree import Tree

if TYPE_CHECKING:
    from .interface import AdapterLike
    from .loop import Decoding, RowReport


class BlockCheck:
    """Decodes the tokens of a block again, one a forward, every so many rounds.

    The cache is rolled back to what it was before the block, and is as it was when that is done.
    Three things are compared: the tokens that were committed with those of plain decoding; the
    distributions that they were drawn from, where tokens are drawn; and the scores of the next
    token behind the slots that the block has committed with those behind slots written plainly.

    Args:
        every: rounds between two checks.
        target: the adapter of the model.
        prompts: ids of the rows. They say how many rounds count as passed when a run begins, so
            that of many short runs one in a while is checked as well.

    Raises:
        SoonerError: fewer than one round between two checks.
        UnsupportedError: layers of the model keep a state, which can't be taken back.
    """

    def __init__(self, every: int, target: AdapterLike, prompts: Sequence[Sequence[int]]) -> None:
        check_whole("verify_every", every, hint=", or None for never")
        if target.chains_only:
            raise UnsupportedError(
                f"verify_every={every} takes blocks back to decode them again, and layers of "
                f"{type(target.model).__name__} keep a state; leave it out"
            )
        self.every = every
        self._rounds = sum(map(sum, prompts)) % every
        self._blocks: dict[int, Tensor] = {}  # original row -> logits of its tokens

    def add_round(
        self, active: Sequence[int], reports: Sequence[RowReport], logits: Tensor, tree: Tree
    ) -> None:
        """Count a round, and keep what a check needs of it, if one is due and it had a draft.

        Args:
            active: original rows of the round, with what was committed of each.
            logits: of the block, `[rows, 1 + nodes, vocab]`.
            tree: the draft.
        """
        self._rounds += 1
        if self._rounds >= self.every and tree.nodes:
            self._rounds = 0
            paths = [report.path for report in reports]
            self._blocks = {row: logits[at, paths[at]] for at, row in enumerate(active)}

    def run(self, decoding: Decoding) -> bool:
        """Check the blocks of the last round, if that is due, of the rows that go on.

        A request whose block differs by more than rounding gets no drafts from then on; that is
        noted and counted as an alarm.

        Returns:
            Whether that happened.
        """
        rows, stats = decoding.rows, decoding.stats
        blocks = [self._blocks.get(original) for original in rows.active]
        self._blocks = {}
        sizes = [0 if block is None else len(block) for block in blocks]
        if not any(sizes):
            return False
        texts = [rows.output(row)[-1 - size :] for row, size in enumerate(sizes)]
        committed, plain = _recompute(decoding, texts)
        stats.num_checked_blocks += sum(size > 0 for size in sizes)
        stats.num_check_forwards += 1 + plain.shape[1]
        differs = False
        for row, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
            if block is None:
                continue
            scores = torch.cat([block, committed[row, None]])  # [size + 1, vocab]
            reference = torch.cat([plain[row, :size], plain[row, -1:]])
            if (text := _difference(decoding, row, texts[row], scores, reference)) is not None:
                stats.note(f"a block is not plain decoding's, no more drafts: {text}", "mismatch")
                decoding.session_of(rows.active[row])[0].max_draft = 0
                differs = True
        return differs


def _recompute(decoding: Decoding, texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Returns the target's logits behind the committed slots, `[rows, vocab]`, and those of each
    token of `texts`, decoded one by one, `[rows, longest, vocab]`.

    Args:
        texts: of each row the last tokens, of which the very last is not in the cache.
    """
    target, device = decoding.session.target, decoding.state.roots.device
    cache, lengths = target.cache, list(target.cache.lengths)
    starts = [length + 1 - len(text) for length, text in zip(lengths, texts, strict=True)]
    tree, steps = Tree.empty(len(texts), device), max(map(len, texts))

    def places(step: int) -> list[int]:  # rows with fewer tokens wait at their last one
        return [min(step, len(text) - 1) for text in texts]

    def forward(step: int) -> Tensor:
        at = places(step)
        cache.set_lengths([start + place for start, place in zip(starts, at, strict=True)])
        roots = [text[place] for text, place in zip(texts, at, strict=True)]
        return target.forward_tree(torch.tensor(roots, device=device), tree).logits[:, 0]

    committed = forward(steps - 1)
    line = torch.tensor([places(step) for step in range(steps - 1)], device=device)
    slots = line.T + torch.tensor(starts, device=device)[:, None]  # [rows, steps - 1]
    written = cache.read_slots(slots)
    try:
        return committed, torch.stack([forward(step) for step in range(steps)], 1)
    finally:
        cache.write_slots(slots, written)
        cache.set_lengths(lengths)


def _difference(
    decoding: Decoding, row: int, text: list[int], scores: Tensor, reference: Tensor
) -> str | None:
    """Returns how a block differs from plain decoding by more than rounding; `None`: not at all.

    Args:
        row: an active row.
        text: tokens of the block, behind the one that it begins with.
        scores, reference: logits of these and of the next token, of the round and of plain
            decoding, `[tokens, vocab]`.
    """
    dtype = decoding.session.target.adapter.dtype
    params = decoding.session.processing.params_of(row).sampling
    is_greedy = params.keeps_scores and not params.do_sample and decoding.stats.mode != RELAXED
    tokens = [*text[1:], int(scores[-1].argmax())]
    probs = [logits.float().softmax(-1) for logits in (scores, reference)]
    distances = ((probs[0] - probs[1]).abs().sum(-1) / 2).tolist()  # total variation
    entries = zip(tokens, reference, distances, strict=True)
    first = len(decoding.rows.output(row)) + 1 - len(text)
    for place, (token, plain, distance) in enumerate(entries, first):
        best = int(plain.argmax())
        if is_greedy:
            parity = compare([best], [token], [plain.to(dtype)])
            if not parity.ok:
                return str(replace(parity, divergence=place))
        elif not distance <= (limit := rounding(dtype, float(plain[best]))):
            return (
                f"the distribution of token {place} is {distance:.3g} from plain decoding's "
                f"(rounding explains {limit:.3g})"
            )
    return None
