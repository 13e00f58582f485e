"""Prompt lookup: what followed the last n tokens earlier in the text is drafted again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import ClassVar, Literal, Protocol

import torch
from torch.nn.functional import pad

from ..checks import check_whole, option
from ..engine.acceptance import follow_choices
from ..engine.interface import Drafter, Outcome
from ..engine.loop import Rule
from ..engine.row_sampling import RowParams
from ..engine.sampling import Processing
from ..engine.tree import Tree
from .base import Method
from .context import Context
from .controller import RoundCost
from .draft_length import AdaptiveDraftLength, DraftLength, plan_round


@dataclass(frozen=True)
class PromptLookup(Method):
    """Drafts by n-gram matching in prompt and output (Saxena 2023); needs no draft model.

    Args:
        num_draft_tokens: draft tokens a round, or `"auto"` for the number that measurably pays with
            as many rows as there are, which may be none.
        max_draft_tokens: upper limit for `"auto"`.
        max_ngram: longest n-gram looked for; shorter ones are tried next, down to `min_ngram`.
        min_ngram: shortest n-gram that may match.

    Raises:
        SoonerError: a value below 1, or `min_ngram` above `max_ngram`.
    """

    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    max_draft_tokens: int = option(16, 1)
    max_ngram: int = option(3, 1)
    min_ngram: int = option(1, 1)
    name: ClassVar[str] = "prompt-lookup"
    drafts_chains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("PromptLookup: max_ngram", self.max_ngram, self.min_ngram)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        longest, note = self.largest_block() - 1, context.stats.note
        is_auto = self.num_draft_tokens == "auto"
        draft_length = AdaptiveDraftLength(longest, note) if is_auto else DraftLength(longest)
        return LookupDrafter(self, context, draft_length), follow_choices


class LookupDrafter(Drafter):
    """Looks up each row's next draft, which costs nothing to find; `draft_length` chooses how much
    of it is verified."""

    def __init__(self, method: PromptLookup, context: Context, draft_length: DraftLength) -> None:
        self.method, self.context, self.draft_length = method, context, draft_length
        self.drafted: list[int] = []  # of each row, under verification
        self.round = RoundCost()  # that verifies them
        self.predict(())

    def predict(self, answer: Sequence[int]) -> None:
        """Look up drafts in what the rows are expected to say, too; before the first round."""
        sizes = (self.method.min_ngram, self.method.max_ngram)
        self.lookup = LookupDrafts(self.context.rows.prompts, answer, sizes)

    def select_rows(self, rows: list[int]) -> None:
        self.lookup.select_rows(rows)
        self.drafted = [self.drafted[row] for row in rows] if self.drafted else []

    def merge(self, other: LookupDrafter) -> None:
        self.lookup.merge(other.lookup)
        if self.drafted:
            self.drafted += [0] * (self.lookup.rows - len(self.drafted))

    def propose(self, outcome: Outcome) -> Tree:
        if self.drafted:
            self.draft_length.observe_round(outcome, self.drafted, self.round)
        matches = self.lookup.look_up(outcome, self.draft_length.largest, self.context.processing)
        self.drafted, self.round = plan_round(self.draft_length, self.context, outcome, matches)
        sizes = zip(self.lookup.drafts, self.drafted, strict=True)
        drafts = [draft[:size] for draft, size in sizes]
        parents = [list(range(-1, len(draft) - 1)) for draft in drafts]
        return Tree.from_lists(drafts, parents, device=str(outcome.hidden.device))


class NgramIndex:
    """Where each n-gram of a growing token list last ended; a look-up costs one dictionary access
    for each n."""

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
        """Returns what follows the latest earlier match of the longest n-gram, `limit` tokens: a
        match that reaches the end of the text is read on into the draft itself."""
        for size in self.sizes:
            if size > len(self.tokens):
                continue
            gram = tuple(self.tokens[len(self.tokens) - size :])
            if (start := self._before.get(gram)) is not None:
                limit = max(limit, 0)
                return list(islice(cycle(self.tokens[start : start + limit]), limit))
        return []


class KnowsTrees(Protocol):
    """A logits processor that can tell of a whole draft which nodes it forbids, as a grammar."""

    def allowed(self, tokens: Sequence[int], parents: Sequence[int]) -> Sequence[bool]:
        """Returns which nodes may stand where they are, each with all above it.

        Args:
            tokens, parents: of one row, as `decoding.tree.Tree` has them.
        """


def allowed_nodes(
    processing: Processing, row: int, tokens: Sequence[int], parents: Sequence[int]
) -> list[int]:
    """Returns nodes of a draft of active row `row` that are worth verifying; parents among them.

    All, unless a processor of the row `KnowsTrees`. What such a one raises ends the row in the next
    round (`RowParams.failed`), and nothing is drafted for it any more.
    """
    nodes = list(range(len(tokens)))
    params: RowParams = processing.params_of(row)
    known = [processor for processor in params.sampling.processors if hasattr(processor, "allowed")]
    if not nodes or not known:
        return nodes
    try:
        verdicts = [processor.allowed(tokens, parents) for processor in known]
    except Exception as error:
        params.failed.append(error)
        return []
    return [node for node in nodes if all(verdict[node] for verdict in verdicts)]


NGRAMS = (1, 3)
"""Shortest and longest n-gram behind which a draft is found, `PromptLookup`'s own."""
NONE = -1
"""No token that was found."""


class LookupDrafts:
    """Looks up the drafts of rows of a batch (Saxena 2023).

    Args:
        prompts: of each row; `None` is a row that has other drafts.
        prediction: what those rows are expected to generate.
        sizes: of the shortest and of the longest n-gram that may match.

    Attributes:
        drafts: of each row, of the last round.
    """

    def __init__(
        self,
        prompts: Sequence[list[int] | None],
        prediction: Sequence[int] = (),
        sizes: tuple[int, int] = NGRAMS,
    ) -> None:
        # Behind the prediction the prompt's end again, so that its n-grams match where it begins.
        self._texts = [
            NgramIndex(
                *sizes, [*prompt, *prediction, *prompt[-sizes[1] :]] if prediction else prompt
            )
            if prompt is not None
            else None
            for prompt in prompts
        ]
        self.drafts: list[list[int]] = []

    @property
    def rows(self) -> int:
        return len(self._texts)

    def select_rows(self, rows: Sequence[int]) -> None:
        self._texts = [self._texts[row] for row in rows]

    def merge(self, other: LookupDrafts) -> None:
        self._texts += other._texts

    def look_up(self, outcome: Outcome, largest: int, processing: Processing) -> list[int]:
        """Find the next draft of each row, at most `largest` tokens; returns how many each has."""
        self.drafts = []
        lines = zip(self._texts, outcome.new, outcome.budget, strict=True)
        for row, (text, new, budget) in enumerate(lines):
            draft: list[int] = []
            if text is not None:
                text.extend(new)
                draft = text.continuation(min(largest, budget - 1))
                chain = range(-1, len(draft) - 1)
                draft = draft[: len(allowed_nodes(processing, row, draft, chain))]
            self.drafts.append(draft)
        return [len(draft) for draft in self.drafts]

    def merge_into(self, tree: Tree, sizes: Sequence[int]) -> Tree:
        """Returns a model's chains, and those that were looked up of other rows, without
        probabilities; `sizes` are of all rows."""
        width = max(sizes)
        tokens = pad(tree.tokens, (0, width - tree.nodes))  # [rows, nodes]
        lines = [
            draft[:size] + [NONE] * (width - len(draft[:size]))
            for draft, size in zip(self.drafts, sizes, strict=True)
        ]
        columns = torch.tensor(lines, dtype=tokens.dtype).to(tokens.device)  # one upload
        return Tree.chain(torch.where(columns == NONE, tokens, columns), sizes)
