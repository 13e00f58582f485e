"""Models and draft trees with known distributions, for tests of the engine without any model.

A prefix of generated tokens is numbered like a heap: the empty one is 0, and one more token `x`
behind prefix `n` is `n * vocab + x + 1`.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from scipy import stats as scipy_stats
from torch import Tensor

from sooner.engine.noise import RowNoise
from sooner.engine.tree import Tree

ERROR = 1e-4
"""Chance that a correct engine fails one chi-square test, were its seed not fixed."""


class Table:
    """A next-token distribution for every prefix shorter than `length`, all of them different.

    Args:
        vocab: number of symbols.
        length: longest sequence.
        seed: seeds the table.
        near: another table to lean towards, so that a draft agrees with it now and then.
        zeros: forbid one symbol after each prefix, as top-k does.
    """

    def __init__(
        self, vocab: int, length: int, seed: int, near: Table | None = None, zeros: bool = False
    ) -> None:
        self.vocab, self.length = vocab, length
        generator = torch.Generator().manual_seed(seed)
        count = sum(vocab**depth for depth in range(length))
        logits = 1.5 * torch.randn(count, vocab, generator=generator)
        if near is not None:
            logits = 0.6 * near.p.clamp(min=1e-6).log() + 0.5 * logits
        if zeros:
            logits[
                torch.arange(count), torch.randint(vocab, (count,), generator=generator)
            ] = -torch.inf
        self.p = logits.softmax(-1)  # [prefixes, vocab]

    def at(self, prefix: Tensor) -> Tensor:
        """Distributions behind numbered prefixes; those too long to matter get the last one."""
        return self.p[prefix.clamp(max=len(self.p) - 1)]

    def extend(self, prefix: Tensor, token: Tensor) -> Tensor:
        """Number of the prefix with one more token; too long a prefix stays too long."""
        longest = self.vocab * len(self.p) + self.vocab
        return (prefix * self.vocab + token + 1).clamp(max=longest)

    def joint(self) -> dict[tuple[int, ...], float]:
        """The probability of every sequence of `length` symbols."""
        return {
            sequence: self._chance(sequence)
            for sequence in itertools.product(range(self.vocab), repeat=self.length)
        }

    def _chance(self, sequence: tuple[int, ...]) -> float:
        chance, prefix = 1.0, 0
        for token in sequence:
            chance *= self.p[prefix, token].item()
            prefix = prefix * self.vocab + token + 1
        return chance


def chi_square(sequences: Tensor, joint: dict[tuple[int, ...], float]) -> float:
    """Chi-square p-value of observed `sequences [samples, length]` against `joint`.

    Cells with fewer than five expected samples are pooled. A sequence that can't occur gives 0.
    """
    samples = len(sequences)
    seen, counts = torch.unique(sequences, dim=0, return_counts=True)
    observed = {tuple(row): n for row, n in zip(seen.tolist(), counts.tolist(), strict=True)}
    if any(joint.get(sequence, 0.0) <= 0 for sequence in observed):
        return 0.0
    pairs = [(observed.get(cell, 0), chance * samples) for cell, chance in joint.items()]
    large = [pair for pair in pairs if pair[1] >= 5]
    rest = [pair for pair in pairs if pair[1] < 5]
    pooled = (sum(n for n, _ in rest), sum(e for _, e in rest))
    cells = [*large, pooled] if pooled[1] >= 5 else large
    total = sum((n - e) ** 2 / e for n, e in cells)
    return float(scipy_stats.chi2.sf(total, len(cells) - 1))


def drawn_tree(parents: list[int], q: Table, rows: int, replacement: bool = False) -> Tree:
    """Returns one tree shape for each row, siblings drawn from `q`, with its probabilities."""
    entries = torch.zeros(rows, 1 + len(parents), dtype=torch.long)  # numbered prefixes
    tokens = torch.zeros(rows, len(parents), dtype=torch.long)
    for above in sorted(set(parents)):
        nodes = [node for node, parent in enumerate(parents) if parent == above]
        at = entries[:, above + 1]
        drawn = torch.multinomial(q.at(at), len(nodes), replacement=replacement)
        tokens[:, nodes] = drawn
        for column, node in enumerate(nodes):
            entries[:, node + 1] = q.extend(at, drawn[:, column])
    shape = torch.tensor(parents).expand(rows, -1)
    is_chain = parents == list(range(-1, len(parents) - 1))
    return Tree.of(tokens, shape, [len(parents)] * rows, q.at(entries), is_chain=is_chain)


def fixed_tree(parents: list[int], tokens: list[int], rows: int) -> Tree:
    """Returns one deterministic tree for each row."""
    return Tree.from_lists([tokens] * rows, [parents] * rows)


def row_noise(rows: int, seed: int = 0) -> RowNoise:
    """Random numbers of rows 0, 1, ... at their first token."""
    return RowNoise.start(seed, torch.arange(rows))


def block_distributions(tree: Tree, p: Table) -> Tensor:
    """The target's distribution behind each block entry, `[rows, 1 + nodes, vocab]`."""
    entries = torch.zeros(tree.rows, 1 + tree.nodes, dtype=torch.long)
    here = torch.arange(tree.rows)
    for node in range(tree.nodes):
        above = entries[here, tree.parents[:, node] + 1]
        entries[:, node + 1] = p.extend(above, tree.tokens[:, node])
    return p.at(entries)


def completed(tree: Tree, verdict: Any, p: Table) -> Tensor:
    """What each row says after one round, then plainly on to the table's length."""
    rows, length = tree.rows, p.length
    sequences = torch.zeros(rows, length, dtype=torch.long)
    prefix = torch.zeros(rows, dtype=torch.long)
    for step in range(length):
        plain = torch.multinomial(p.at(prefix), 1)[:, 0]
        node = torch.zeros_like(plain)
        if step < verdict.path.shape[1]:
            node = (verdict.path[:, step] - 1).clamp(min=0)
        drafted = tree.tokens.gather(1, node[:, None])[:, 0]
        token = torch.where(step < verdict.accepted, drafted, plain)
        token = torch.where(step == verdict.accepted, verdict.bonus, token)
        sequences[:, step] = token
        prefix = p.extend(prefix, token)
    return sequences
