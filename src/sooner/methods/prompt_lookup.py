"""Prompt lookup: what followed the last n tokens earlier in the text is drafted again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ..decoding.interface import Drafter, Outcome
from ..decoding.loop import Rule
from ..decoding.rows import Rows
from ..decoding.tree import Tree
from ..registry import DraftModel
from .base import Method
from .checks import positive
from .context import Context
from .rules import follow_choices
from .settings import MethodSettings


@dataclass(frozen=True)
class PromptLookup(Method):
    """Drafts by n-gram matching in prompt and output (Saxena 2023); needs no draft model.

    Args:
        num_draft_tokens: draft tokens a round.
        max_ngram: longest n-gram looked for; shorter ones are tried next, down to `min_ngram`.
        min_ngram: shortest n-gram that may match.

    Raises:
        SoonerError: a value below 1, or `min_ngram` above `max_ngram`.
    """

    num_draft_tokens: int = 10
    max_ngram: int = 3
    min_ngram: int = 1
    name: ClassVar[str] = "prompt-lookup"
    summary: ClassVar[str] = "what followed the last n tokens earlier in the text"
    draft_model: ClassVar[DraftModel] = "none"

    def __post_init__(self) -> None:
        positive(self, "num_draft_tokens", "max_ngram", "min_ngram")
        positive(self, "max_ngram", at_least=self.min_ngram)

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        return cls(**settings.given("num_draft_tokens"))

    def largest_block(self) -> int:
        return 1 + self.num_draft_tokens

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        return LookupDrafter(self, context.rows), follow_choices


class LookupDrafter(Drafter):
    def __init__(self, method: PromptLookup, rows: Rows) -> None:
        self.method = method
        self.indices = [
            NgramIndex(method.min_ngram, method.max_ngram, prompt) for prompt in rows.prompts
        ]

    def keep_rows(self, rows: list[int]) -> None:
        self.indices = [self.indices[row] for row in rows]

    def join(self, other: LookupDrafter) -> None:
        self.indices += other.indices

    def propose(self, outcome: Outcome) -> Tree:
        drafts = []
        for index, new, budget in zip(self.indices, outcome.new, outcome.budget, strict=True):
            index.extend(new)
            drafts.append(index.continuation(min(self.method.num_draft_tokens, budget - 1)))
        parents = [list(range(-1, len(draft) - 1)) for draft in drafts]
        return Tree.from_lists(drafts, parents, device=str(outcome.hidden.device))


class NgramIndex:
    """Where each n-gram of a growing token list last ended, kept up to date token by token.

    A look-up costs one dictionary access for each n, whatever the length of the text.
    """

    def __init__(self, shortest: int, longest: int, tokens: list[int]) -> None:
        self.sizes = range(longest, shortest - 1, -1)
        self.tokens: list[int] = []
        self._last: dict[tuple[int, ...], int] = {}
        self._before: dict[tuple[int, ...], int] = {}
        self.extend(tokens)

    def extend(self, tokens: list[int]) -> None:
        """Append `tokens` and index the n-grams that they complete."""
        for token in tokens:
            self.tokens.append(token)
            end = len(self.tokens)
            for size in self.sizes:
                if size <= end:
                    gram = tuple(self.tokens[end - size :])
                    if gram in self._last:
                        self._before[gram] = self._last[gram]
                    self._last[gram] = end

    def continuation(self, limit: int) -> list[int]:
        """`limit` tokens that follow the latest earlier match of the longest n-gram, or none.

        A match that reaches the end of the text is read on into the draft itself, so a text that
        repeats with any period is drafted to the full length.
        """
        for size in self.sizes:
            if size > len(self.tokens):
                continue
            gram = tuple(self.tokens[len(self.tokens) - size :])
            if (start := self._before.get(gram)) is not None:
                known = self.tokens[start : start + max(limit, 0)]
                period = len(self.tokens) - start
                while len(known) < limit:
                    known.append(known[len(known) - period])
                return known
        return []
