"""Sampling settings of each row as tensors: rows of one batch may be sampled in different ways.

The same distributions as HF's logits processors of the same names, in the order in which `generate`
applies them: logit bias, repetition penalty, (presence and frequency penalties, which HF lacks, as
in OpenAI's API), temperature, top-k, top-p, min-p. Nothing here reads from the device, and no shape
depends on a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .tree import Tree


@dataclass(frozen=True)
class RowSampling:
    """How each row is sampled. A setting's neutral value leaves its scores as they are.

    Attributes:
        temperature: `[rows]`; 0 is greedy decoding, 1 is neutral.
        top_k: `[rows]` int64; 0 is neutral.
        top_p: `[rows]`; 1 is neutral.
        min_p: `[rows]`; 0 is neutral.
        repetition: `[rows]`, of prompt and generated tokens; 1 is neutral.
        presence: `[rows]`, taken from every generated token's score once; 0 is neutral.
        frequency: `[rows]`, taken from it for each time it was generated; 0 is neutral.
        bias_ids: ids whose scores are raised, `[rows, biases]` int64, distinct where values are
            not 0.
        bias_values: by how much, `[rows, biases]`; 0 is neutral.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    repetition: Tensor
    presence: Tensor
    frequency: Tensor
    bias_ids: Tensor
    bias_values: Tensor

    @staticmethod
    def neutral(rows: int, biases: int = 1, device: torch.device | str = "cpu") -> RowSampling:
        """Every row as its logits are, with room for `biases` ids."""
        one, none = torch.ones(rows, device=device), torch.zeros(rows, device=device)
        ids = torch.zeros(rows, biases, dtype=torch.long, device=device)
        top_k = torch.zeros(rows, dtype=torch.long, device=device)
        return RowSampling(one, top_k, one, none, one, none, none, ids, ids.float())

    def scores(self, logits: Tensor, tree: Tree, seen: Tensor, counts: Tensor) -> Tensor:
        """Processed scores of a block, fp32, `[rows, 1 + nodes, vocab]` like `logits`.

        Args:
            logits: of the last committed token and the nodes of `tree`.
            tree: the draft, whose tokens count along the path that leads to an entry.
            seen: tokens of the row's prompt, `[rows, vocab]` bool.
            counts: how often the row generated each token, `[rows, vocab]`.
        """
        biased = logits.float().scatter_add(
            2,
            self.bias_ids[:, None].expand(-1, logits.shape[1], -1),
            self.bias_values[:, None].float().expand(-1, logits.shape[1], -1),
        )
        return self._warp(self._penalise(biased, tree, seen, counts))

    def _penalise(self, scores: Tensor, tree: Tree, seen: Tensor, counts: Tensor) -> Tensor:
        done = self._lower(scores, seen[:, None], counts[:, None])
        if tree.nodes == 0:
            return done
        # Tokens drafted above an entry count, too. Only their scores differ from the row's: they
        # are worked out apart, the same for all nodes of one token, and written over.
        own = tree.valid()[:, None] & tree.ancestors()[..., 1:]  # [rows, entries, nodes]
        same = tree.tokens[:, :, None] == tree.tokens[:, None]  # [rows, nodes, nodes]
        above = own.float() @ same.float()  # times that a node's token stands above an entry
        index = tree.tokens[:, None].expand_as(above)
        known = seen.gather(1, tree.tokens)[:, None]
        count = counts.gather(1, tree.tokens)[:, None] + above
        return done.scatter(2, index, self._lower(scores.gather(2, index), known, count))

    def _lower(self, scores: Tensor, seen: Tensor, counts: Tensor) -> Tensor:
        """Scores after the penalties for tokens generated `counts` times."""
        repetition = self.repetition[:, None, None].float()
        said = counts > 0
        repeated = torch.where(scores < 0, scores * repetition, scores / repetition)
        scores = torch.where(seen | said, repeated, scores)
        scores = scores - self.frequency[:, None, None] * counts
        return scores - self.presence[:, None, None] * said

    def _warp(self, scores: Tensor) -> Tensor:
        temperature = self.temperature[:, None, None].float()
        is_greedy = temperature == 0
        best = scores.argmax(-1, keepdim=True)
        scores = scores / torch.where(is_greedy, 1.0, temperature)
        ranked, order = scores.sort(-1)  # ascending, as in HF, which keeps the last of equals
        keep = self._within_top_k(ranked)
        ranked = ranked.masked_fill(~keep, -torch.inf)
        keep = self._within_top_p(ranked)
        ranked = ranked.masked_fill(~keep, -torch.inf)
        p = ranked.softmax(-1)
        floor = self.min_p[:, None, None] * p[..., -1:]
        ranked = ranked.masked_fill((p < floor) & ~self._is_last(p), -torch.inf)
        warped = torch.empty_like(scores).scatter(-1, order, ranked)
        certain = torch.full_like(scores, -torch.inf).scatter(-1, best, 0.0)
        return torch.where(is_greedy, certain, warped)

    def _within_top_k(self, ranked: Tensor) -> Tensor:
        """The k best of each row, and all that equal the last of them."""
        vocab = ranked.shape[-1]
        k = torch.where(self.top_k > 0, self.top_k.clamp(max=vocab), vocab)
        index = (vocab - k)[:, None, None].expand(-1, ranked.shape[1], 1)
        return ranked >= ranked.gather(-1, index)

    def _within_top_p(self, ranked: Tensor) -> Tensor:
        """The fewest of the best whose probabilities sum to `top_p`."""
        top_p = self.top_p[:, None, None]
        outside = (ranked.softmax(-1).cumsum(-1) <= 1 - top_p) & (top_p < 1)
        return ~outside | self._is_last(ranked)

    def _is_last(self, ranked: Tensor) -> Tensor:
        line = torch.arange(ranked.shape[-1], device=ranked.device)
        return line == ranked.shape[-1] - 1
