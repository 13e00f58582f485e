"""Drafts of rows that no model drafts for: what followed the same words earlier in their text."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine.interface import Outcome
from ..engine.sampling import Processing
from ..engine.tree import Tree
from .forbidden_tokens import allowed_nodes
from .prompt_lookup import NgramIndex, text_with_prediction

NGRAM = 3
"""Longest n-gram behind which a draft is found, as in `PromptLookup`."""
NONE = -1
"""No token that was found."""


class LookupDrafts:
    """Looks up the drafts of some rows of a batch (Saxena 2023), as `PromptLookup` does for all.

    Args:
        prompts: of each row; `None` is a row that has other drafts.
        prediction: what those rows are expected to say.
    """

    def __init__(self, prompts: Sequence[list[int] | None], prediction: Sequence[int] = ()) -> None:
        self._texts = [
            None
            if prompt is None
            else NgramIndex(1, NGRAM, text_with_prediction(prompt, prediction, NGRAM))
            for prompt in prompts
        ]
        self._drafts: list[list[int]] = []

    def select_rows(self, rows: Sequence[int]) -> None:
        self._texts = [self._texts[row] for row in rows]

    def merge(self, other: LookupDrafts) -> None:
        self._texts += other._texts

    def look_up(self, outcome: Outcome, largest: int, processing: Processing) -> list[int]:
        """Find the next draft of each row, at most `largest` tokens; once a round.

        Returns:
            how many tokens were found for each.
        """
        self._drafts = []
        lines = zip(self._texts, outcome.new, outcome.budget, strict=True)
        for row, (text, new, budget) in enumerate(lines):
            draft: list[int] = []
            if text is not None:
                text.extend(new)
                draft = text.continuation(min(largest, budget - 1))
                chain = range(-1, len(draft) - 1)
                draft = draft[: len(allowed_nodes(processing, row, draft, chain))]
            self._drafts.append(draft)
        return [len(draft) for draft in self._drafts]

    def merge_into(self, tree: Tree, sizes: Sequence[int]) -> Tree:
        """Returns a model's chains, and the found ones of the other rows; `sizes` of all rows.

        Their probabilities are not kept: a rule that asks for them has no place for found drafts.
        """
        width = max(sizes)
        tokens = tree.tokens.new_zeros(tree.rows, width)  # [rows, nodes]
        tokens[:, : tree.nodes] = tree.tokens
        lines = [
            draft[:size] + [NONE] * (width - len(draft[:size]))
            for draft, size in zip(self._drafts, sizes, strict=True)
        ]
        columns = torch.tensor(lines, dtype=tokens.dtype).to(
            tokens.device
        )  # one upload for all rows
        return Tree.chain(torch.where(columns == NONE, tokens, columns), sizes)
