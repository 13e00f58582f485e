"""One processed distribution, shared by draft and target.

Hugging Face logits processors are honoured. What has an equivalent by row (`RowSampling`) is
tensors of a step, whatever the rows beside it ask for. Other processors stand between its two
parts: those that look only at the scores run once over the whole block; the rest see, for every
block entry, the very prefix that plain decoding would have shown them, which the host has to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from ..errors import BadLogitsError
from .noise import Purpose, RowNoise
from .row_sampling import History, RowParams, RowSampling, by_entries
from .tree import Paths, Tree


class Processing:
    """Turns logits into the scores or probabilities that tokens are chosen from.

    Args:
        rows: parameters of each (`SamplingParams.rows`); none are rows as they come.
        do_sample: of those as they come: tokens are drawn; otherwise the best score wins.
        prompt: the rows' ids, padded, as `generate` received them, `[rows, width]`; for penalties.
        generated: how many of the last ids of each the row generated itself.

    Attributes:
        do_sample: any row draws.
    """

    def __init__(
        self,
        rows: Sequence[RowParams] = (),
        do_sample: bool = False,
        prompt: Tensor | None = None,
        generated: int = 0,
    ) -> None:
        self._prompt, self._generated = prompt, generated
        self._history: History | None = None
        self._watchers: list[Any] = []
        self._set_rows(list(rows))
        self.do_sample |= do_sample

    def _set_rows(self, rows: list[RowParams]) -> None:
        self._rows = rows
        self._tensors: dict[torch.device, RowSampling] = {}  # made when scores are asked for
        draws = {params.sampling.do_sample for params in rows}
        self.do_sample = any(draws)
        self._is_plain = len(draws) < 2 and all(params.sampling.keeps_scores for params in rows)

    @property
    def changes_scores(self) -> bool:
        """Whether the scores of some row are not its logits."""
        return not self._is_plain

    @property
    def is_plain(self) -> bool:
        """Whether the scores of all rows are their logits, and nothing else reads them."""
        return self._is_plain and not self._watchers

    @property
    def counts_tokens(self) -> bool:
        """Whether penalties count the generated tokens."""
        return self._history is not None

    @property
    def costs(self) -> str | None:
        """What the host has to do in each round, in words."""
        if not any(params.sampling.reads_text for params in self._rows):
            return None
        host = [each for params in self._rows for each in params.sampling.processors]
        names = sorted({type(each).__name__ for each in host})
        return f"{', '.join(names)}: the host reads every block's tokens and asks at each of them"

    def copy_to(self, device: torch.device) -> Processing:
        """Returns a copy on a device, which drops rows by itself and has no watchers."""
        made = copy(self)
        made._tensors, made._watchers = {}, []
        made._prompt = None if self._prompt is None else self._prompt.to(device)
        made._history = None if self._history is None else self._history.copy_to(device)
        return made

    def params_of(self, row: int) -> RowParams:
        """Returns what was asked for an active row."""
        return self._rows[row]

    def watch(self, watcher: Any) -> None:
        """Show these rows' raw logits to `watcher`, which changes nothing and reads no prefix."""
        self._watchers.append(watcher)

    def merge(self, other: Processing) -> None:
        """Put the rows of `other`, processed as there, behind these."""
        mine, other_history = self._history, other._history
        if mine is not None or other_history is not None:
            some = mine or other_history
            assert some is not None
            mine = mine or some.without_text(len(self._rows))
            other_history = other_history or some.without_text(len(other._rows))
            self._history = mine.merge(other_history.to(mine.seen.device))
        self._set_rows(self._rows + other._rows)
        self._prompt = None  # read where it matters: scores have been asked for

    def select_rows(self, rows: list[int]) -> None:
        """Keep these active rows, in this order."""
        self._set_rows([self._rows[row] for row in rows])
        if self._prompt is not None:
            self._prompt = self._prompt[torch.tensor(rows, device=self._prompt.device)]
        if self._history is not None:
            index = torch.tensor(rows, device=self._history.seen.device)
            counts = any(params.sampling.counts for params in self._rows)
            self._history = self._history.select_rows(index) if counts else None

    def count(self, tokens: Tensor, generated: Tensor) -> None:
        """Counts the first `said [rows]` of `tokens [rows, most]`, which the rows generated."""
        if self._history is not None:
            self._history.count(tokens, generated)

    def recount(self, texts: list[list[int]], vocab: int) -> None:
        """The rows have generated these texts since they began here; for a draft that counts
        beside the loop."""
        if any(params.sampling.counts for params in self._rows):
            self._history = None
            history = self._start_history(vocab)
            width = max(map(len, texts))
            padded = torch.tensor([text + [0] * (width - len(text)) for text in texts])
            sizes = torch.tensor([len(text) for text in texts])
            device = history.counts.device
            history.count(padded.long().to(device), sizes.to(device))

    def _start_history(self, vocab: int) -> History:
        if self._history is None:
            assert self._prompt is not None, "penalties need the prompt"
            self._history = History.start(self._prompt, self._rows, vocab)
            if self._generated:
                tail = self._prompt[:, -self._generated :].clamp(max=vocab - 1)
                self._history.count(tail, torch.full_like(tail[:, 0], self._generated))
        return self._history

    def scores(
        self,
        logits: Tensor,
        drafted: Callable[[], Paths] | None = None,
        prefix: Callable[[int], list[int]] = lambda row: [],
    ) -> Tensor:
        """Returns processed scores, fp32, `[rows, entries, vocab]` like `logits`.

        Where some rows draw and others do not, the best score of a row that does not becomes its
        only one, so that every draw takes it.

        Args:
            logits: `[rows, entries, vocab]`.
            drafted: what was drafted above each entry, `None` for nothing; asked for by penalties
                and by processors that read it.
            prefix: prompt and committed tokens of a row, for processors that read them.
        """
        raw = logits.float()
        for watcher in self._watchers:
            watcher(*_flat(raw))
        if self._is_plain:
            return raw
        sampling = self._sampling(raw)
        history = paths = None
        if sampling.counts:
            history = self._start_history(raw.shape[-1]).to(raw.device)
        if sampling.reads is not None and drafted is not None:
            paths = drafted()
        scores = sampling.penalise(raw, history, paths)
        return sampling.warp(self._by_host(scores, paths, prefix), raw, paths)

    def _sampling(self, scores: Tensor) -> RowSampling:
        if (device := scores.device) not in self._tensors:
            self._tensors[device] = RowSampling.of(self._rows, scores.shape[-1], device)
        return self._tensors[device]

    def _by_host(
        self, scores: Tensor, paths: Paths | None, prefix: Callable[[int], list[int]]
    ) -> Tensor:
        """Returns what has no equivalent by row, each request's on its own rows."""
        groups: dict[int, list[int]] = {}
        for row, params in enumerate(self._rows):
            if params.sampling.processors:
                groups.setdefault(id(params.sampling), []).append(row)
        texts: list[list[list[int]]] = []
        for rows in groups.values():
            params, is_all = self._rows[rows[0]], len(rows) == len(scores)
            some = scores if is_all else scores[torch.tensor(rows, device=scores.device)]
            if params.sampling.reads_text:
                texts = texts or _texts(paths, prefix, len(scores))
                lines = zip(rows, some, strict=True)
                done = torch.stack(
                    [self._rows[row].by_text(item, texts[row]) for row, item in lines]
                )
            else:
                unread, flat = _flat(some.clone())  # which a processor may write to
                for item in params.sampling.processors:
                    flat = item(unread, flat)
                done = flat.view_as(some)
            if not is_all:
                index = torch.tensor(rows, device=scores.device)
                done = scores.index_copy(0, index, done)
            scores = done
        return scores

    def choose(self, scores: Tensor, tree: Tree, noise: RowNoise) -> Tensor:
        """Returns the argmax of each entry, or one draw when sampling: `[rows, entries]`.

        Draws belong to a place: entries of one depth share their random number, so that whatever
        is drafted there, the target says what it would have said without a draft.

        Args:
            scores: of the block of `tree`, `[rows, 1 + nodes, vocab]`.
            tree: the draft.
            noise: of its rows; greedy decoding asks for none.
        """
        if not self.do_sample:
            return scores.argmax(-1)
        uniforms = noise.uniforms(Purpose.TOKEN, tree.depths())[..., None]  # [rows, entries, 1]
        return by_entries(
            lambda part, draws: _pick(self.probabilities(part), draws), scores, uniforms
        )[..., 0]

    def probabilities(self, scores: Tensor) -> Tensor:
        """Returns softmax of processed scores, `[rows, entries, vocab]`, fp32."""
        return scores.softmax(-1)

    def broken(self, scores: Tensor) -> Tensor:
        """Returns where no token can be chosen, `[...]` bool of `scores [..., vocab]`.

        A NaN anywhere is one, and for a draw an infinite score, or no finite one at all.
        """
        if not self.do_sample:
            return scores.amax(-1).isnan()
        return ~scores.logsumexp(-1).isfinite()


def _flat(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a processor's arguments without ids: an empty tensor, and `[lines, vocab]` scores."""
    flat = scores.reshape(-1, scores.shape[-1])
    return torch.empty(flat.shape[0], 0, dtype=torch.long, device=flat.device), flat


def _texts(
    paths: Paths | None, prefix: Callable[[int], list[int]], rows: int
) -> list[list[list[int]]]:
    """Returns the ids that each entry of each row continues."""
    if paths is None:
        return [[prefix(row)] for row in range(rows)]
    tokens, above = paths.tokens.tolist(), paths.above.expand(rows, -1, -1).tolist()
    return [
        [
            [*generated, *(token for token, on in zip(tokens[row], line, strict=True) if on)]
            for line in above[row]
        ]
        for row, generated in enumerate(map(prefix, range(rows)))
    ]


def pick(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Returns one index of each row of `weights [..., vocab]`, by inversion of its running sum.

    Weights need not sum to one. An index of weight zero is never picked, whatever rounding does.
    One uniform number a row is all the randomness it takes, where `torch.multinomial` draws one
    for every token of the vocabulary. The sum runs in fp64, so that rare tokens behind a long
    vocabulary keep their share; of NaN some index is picked, for `Processing.broken` to report.

    Args:
        weights: non-negative, at least one of each row positive.
        uniforms: in `[0, 1)`, `[...]`.
    """
    return by_entries(_pick, weights, uniforms[..., None])[..., 0]


def _pick(weights: Tensor, uniforms: Tensor) -> Tensor:
    """`pick` with `uniforms [..., 1]` for a few entries, whose sums fit into memory: `[..., 1]`."""
    mass = weights.cumsum(-1, dtype=torch.float64)
    total = mass[..., -1:]
    mark = torch.minimum(uniforms * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(mass, mark, right=True).clamp_(max=weights.shape[-1] - 1)


def bad_logits() -> BadLogitsError:
    """Returns the error of a run whose next token can't be chosen."""
    return BadLogitsError(
        "the model returned NaN logits; use float32 or bfloat16 instead of float16, or check "
        "the weights"
    )
