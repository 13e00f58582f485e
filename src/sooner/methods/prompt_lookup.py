"""Prompt lookup: what followed the last n tokens earlier in the text is drafted again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice, takewhile
from typing import ClassVar, Literal

import numpy as np
import torch
from torch.nn.functional import pad

from ..checks import check_whole, option
from ..engine.acceptance import follow_choices
from ..engine.interface import Drafter, Outcome
from ..engine.loop import Rule
from ..engine.row_sampling import RowParams
from ..engine.sampling import Processing
from ..engine.tree import Tree
from ..errors import SoonerError
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
        max_ngram: longest n-gram looked for; shorter ones are tried next, down to `min_ngram`. Of
            several places, the one that matches most tokens before it is taken.
        min_ngram: shortest n-gram that may match.
        predictions: token ids that each row is expected to repeat in part, such as a text that is
            to be edited; drafts are looked up there, too. Empty for none.

    Raises:
        SoonerError: a value below 1, or `min_ngram` above `max_ngram`; in a run, predictions for
            another number of prompts.
    """

    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    max_draft_tokens: int = option(32, 1)
    max_ngram: int = option(3, 1)
    min_ngram: int = option(1, 1)
    predictions: Sequence[Sequence[int]] = field(default=(), repr=False, compare=False)
    name: ClassVar[str] = "prompt-lookup"
    drafts_chains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("PromptLookup: max_ngram", self.max_ngram, self.min_ngram)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        longest, note = self.largest_block() - 1, context.stats.note
        is_auto = self.num_draft_tokens == "auto"
        draft_length = AdaptiveDraftLength(longest, note) if is_auto else DraftLength(longest)
        if len(self.predictions) not in (0, context.prompts):
            raise SoonerError(
                f"PromptLookup: predictions are for {len(self.predictions)} rows, the batch has "
                f"{context.prompts}; give each row its own, an empty one for none"
            )
        return LookupDrafter(self, context, draft_length), follow_choices


class LookupDrafter(Drafter):
    """Looks up each row's next draft, which costs nothing to find; `draft_length` chooses how much
    of it is verified."""

    def __init__(self, method: PromptLookup, context: Context, draft_length: DraftLength) -> None:
        self.method, self.context, self.draft_length = method, context, draft_length
        self.drafted: list[int] = []  # of each row, under verification
        self.round = RoundCost()  # that verifies them
        predictions = method.predictions or [()] * context.prompts
        self.predict([each for each in predictions for _ in range(context.copies)])

    def predict(self, predictions: Sequence[Sequence[int]]) -> None:
        """Looks up drafts in what each row is expected to generate, too; called before round 1."""
        sizes = (self.method.min_ngram, self.method.max_ngram)
        self.lookup = LookupDrafts(self.context.rows.prompts, predictions, sizes)

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
        looked_up = self.lookup.look_up(outcome, self.draft_length.largest, self.context.processing)
        self.drafted, self.round = plan_round(self.draft_length, self.context, outcome, looked_up)
        sizes = zip(self.lookup.drafts, self.drafted, strict=True)
        drafts = [draft[:size] for draft, size in sizes]
        parents = [list(range(-1, len(draft) - 1)) for draft in drafts]
        return Tree.from_lists(drafts, parents, device=str(outcome.hidden.device))


MAX_MATCH = 32
"""Tokens of a match from which on a longer one counts the same."""
MAX_PLACES = 16
"""Latest places of an n-gram that are compared."""


def common_end(tokens: Sequence[int], place: int, text: Sequence[int], maximum: int) -> int:
    """Returns how many of `tokens` in front of `place`, up to `maximum`, are the last of `text`."""
    count, limit = 0, min(maximum, len(text), place)
    while count < limit and tokens[place - 1 - count] == text[-1 - count]:
        count += 1
    return count


class NgramIndex:
    """Where the end of a growing token list stood before.

    Places are found by the n-grams of some sizes, in one dictionary access for each size, and
    those that the text goes on to match further back are preferred.

    Args:
        shortest, longest: sizes of the n-grams.
        tokens: the text so far.
        prediction: what is expected behind it. It is indexed behind the text, which then stands
            once more, so that its end matches the place where the prediction begins.
    """

    def __init__(
        self, shortest: int, longest: int, tokens: Sequence[int], prediction: Sequence[int] = ()
    ) -> None:
        self.sizes = range(longest, shortest - 1, -1)
        self.seam = len(tokens) + len(prediction) if prediction else -1  # nothing goes on over it
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}  # of each n-gram, ascending
        self.extend(tokens)
        if prediction:
            self.extend([*prediction, *tokens[-MAX_MATCH:]])

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens` and index the n-grams that they complete."""
        for token in tokens:
            self.tokens.append(token)
            end = len(self.tokens)
            for size in self.sizes:
                if size <= end:
                    self._ends.setdefault(tuple(self.tokens[end - size :]), []).append(end)

    def draft(self, limit: int) -> tuple[list[int], int]:
        """Returns `limit` tokens that followed the place which matches most tokens before the end,
        the latest of several, and how many it matches (at most `MAX_MATCH`).

        A match that reaches the end of the text is read on into the draft itself.
        """
        start, length = self._match()
        if not length or limit < 1:
            return [], 0
        if start < self.seam:
            return self.tokens[start : min(start + limit, self.seam)], length
        return list(islice(cycle(self.tokens[start : start + limit]), limit)), length

    def _match(self) -> tuple[int, int]:
        best = (0, 0)
        for size in self.sizes:
            gram = tuple(self.tokens[-size:]) if size <= len(self.tokens) else ()
            ends = self._ends.get(gram, [])  # the last of them is the text's own
            for place in ends[-2 : -2 - MAX_PLACES : -1]:
                length = common_end(self.tokens, place, self.tokens, MAX_MATCH)
                if place != self.seam and length > best[1]:
                    best = place, length
            if best[1]:
                break
        return best


MATCH_LENGTHS = (1, 2, 3, 4, 6, 8, 16, MAX_MATCH)
"""Longest match of each class whose acceptance is counted."""
MATCH_CHANCES = (0.2, 0.4, 0.65, 0.75, 0.8, 0.88, 0.93, 0.97)
"""Chance that the token behind a match of each class is right, before any was seen. Set by hand
after answers of SmolLM2-135M-Instruct; matches of one and two tokens are trusted less than they
showed."""
MATCH_WEIGHT, MATCH_MEMORY = 4.0, 0.95
"""Tokens' worth of belief in these, and weight that tokens keep with each later one."""


class MatchAcceptance:
    """How often the token behind a match is right, by how many tokens match.

    Long matches are copies, short ones are chance. A draft's second token lies behind a match that
    is longer by one, and so on. What was looked up is compared with what was generated whether it
    was drafted or not, so that no draft has to be tried to learn what it is worth.
    """

    def __init__(self) -> None:
        self._right, self._seen = [0.0] * len(MATCH_LENGTHS), [0.0] * len(MATCH_LENGTHS)

    def observe(self, draft: Sequence[int], length: int, new: Sequence[int]) -> None:
        """Records that behind a match of `length` tokens, after which `draft` was looked up, `new`
        was generated."""
        for depth, (token, right) in enumerate(zip(draft, new, strict=False)):
            kind = bisect_left(MATCH_LENGTHS, min(length + depth, MAX_MATCH))
            self._right[kind] = MATCH_MEMORY * self._right[kind] + (token == right)
            self._seen[kind] = MATCH_MEMORY * self._seen[kind] + 1
            if token != right:
                break

    def chances(self, length: int, count: int) -> np.ndarray:
        """Returns the chance of each of `count` tokens behind a match of `length` that it is right
        where those before it are, `[count]`."""
        known = [
            (right + MATCH_WEIGHT * chance) / (seen + MATCH_WEIGHT)
            for right, seen, chance in zip(self._right, self._seen, MATCH_CHANCES, strict=True)
        ]
        matches = np.minimum(length + np.arange(count), MAX_MATCH)
        return np.array(known)[np.searchsorted(MATCH_LENGTHS, matches)]


def allowed_nodes(
    processing: Processing, row: int, tokens: Sequence[int], parents: Sequence[int]
) -> list[int]:
    """Returns nodes of a draft of active row `row` that are worth verifying; parents among them.

    All, unless a logits processor of the row knows trees, as a grammar does: it has a method
    `allowed(tokens, parents)`, which returns for each node whether it may stand where it is. What
    that raises ends the row in the next round (`RowParams.failed`), and nothing is drafted for it
    any more.
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


@dataclass
class RowLookup:
    """The text of a row, the draft that was looked up in it, and the tokens that it matched."""

    text: NgramIndex
    draft: list[int] = field(default_factory=list)
    match: int = 0


class LookupDrafts:
    """Looks up the drafts of rows of a batch (Saxena 2023).

    Args:
        prompts: of each row; `None` is a row that has other drafts.
        predictions: what each row is expected to generate, empty where nothing is known.
        sizes: of the shortest and of the longest n-gram that may match.

    Attributes:
        acceptance: of all rows.
    """

    def __init__(
        self,
        prompts: Sequence[list[int] | None],
        predictions: Sequence[Sequence[int]],
        sizes: tuple[int, int] = NGRAMS,
    ) -> None:
        self.acceptance = MatchAcceptance()
        self._rows = [
            None if prompt is None else RowLookup(NgramIndex(*sizes, prompt, prediction))
            for prompt, prediction in zip(prompts, predictions, strict=True)
        ]

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def drafts(self) -> list[list[int]]:
        """What was looked up for each row."""
        return [[] if row is None else row.draft for row in self._rows]

    def select_rows(self, rows: Sequence[int]) -> None:
        self._rows = [self._rows[row] for row in rows]

    def merge(self, other: LookupDrafts) -> None:
        self._rows += other._rows

    def look_up(
        self, outcome: Outcome, largest: int, processing: Processing
    ) -> list[np.ndarray | None]:
        """Find the next draft of each row, at most `largest` tokens; returns the chance of each of
        its tokens, `[tokens]`, and `None` for rows that have other drafts."""
        entries = zip(self._rows, outcome.new, outcome.budget, strict=True)
        for number, (row, new, budget) in enumerate(entries):
            if row is None:
                continue
            self.acceptance.observe(row.draft, row.match, new)
            row.text.extend(new)
            row.draft, row.match = row.text.draft(min(largest, budget - 1))
            # Some models embed more ids than they have scores for, such as their picture token.
            row.draft = list(takewhile(outcome.scores.shape[-1].__gt__, row.draft))
            chain = range(-1, len(row.draft) - 1)
            row.draft = row.draft[: len(allowed_nodes(processing, number, row.draft, chain))]
        return [
            None if row is None else self.acceptance.chances(row.match, len(row.draft))
            for row in self._rows
        ]

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
