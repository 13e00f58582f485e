"""How rows are sampled: the parameters of a request, and those of a batch as tensors.

The same scores as HF's logits processors of the same names give, to the bit, in the order in which
`generate` applies them: logit bias, repetition penalty, (presence and frequency penalties, which HF
lacks, as in OpenAI's API), temperature, top-k, top-p, min-p. Nothing here reads from the device,
no shape depends on a value there, and a setting that no row has costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria
from transformers.generation import logits_process as hf

from ..errors import SoonerError
from .tree import Paths

PREFIX_FREE = (
    hf.TemperatureLogitsWarper,
    hf.TopKLogitsWarper,
    hf.TopPLogitsWarper,
    hf.MinPLogitsWarper,
    hf.TypicalLogitsWarper,
    hf.EpsilonLogitsWarper,
    hf.EtaLogitsWarper,
    hf.LogitNormalization,
    hf.InfNanRemoveLogitsProcessor,
    hf.SuppressTokensLogitsProcessor,
)
"""Processors that look at scores alone, never at the tokens before them."""

MAX_NUMBERS = 1 << 22
"""Numbers of a part: 27 entries of a vocabulary of 152,000. A sort of them takes 48 MiB."""


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of a request are chosen, and when its rows end.

    They are made once, where a request comes in: `hf_border` makes them of the arguments of
    transformers' `generate`. A step applies, in this order: `logit_bias`, the penalties,
    `processors`, temperature, top-k, top-p, min-p.

    Attributes:
        max_new_tokens: most new tokens of a row; `None` is no limit, which only a grid can end.
        do_sample: tokens are drawn; otherwise the best score wins.
        temperature: scores are divided by it, above 0.
        top_k: likeliest tokens that are kept; 0 is all.
        top_p, min_p: as transformers' of these names.
        repetition_penalty: transformers' penalty of tokens in prompt and output.
        ignored: ids at the beginning of each row's prompt that it does not count; empty is none.
        presence_penalty: taken from the score of each token of the output, once.
        frequency_penalty: taken from it for each time that the token was generated.
        logit_bias: `(id, value)` pairs; the value is added to the score, minus infinity forbids.
        stop_token_ids: ids that end a row.
        n: samples of each prompt.
        processors: HF processors without an equivalent by row, which the host runs.
        criteria: HF stopping criteria, and `RowWatch`es, which the host asks.
    """

    max_new_tokens: int | None = None
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    ignored: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    n: int = 1
    processors: tuple[Any, ...] = ()
    criteria: tuple[StoppingCriteria, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether it matters which tokens were generated."""
        penalties = (self.repetition_penalty != 1, self.presence_penalty, self.frequency_penalty)
        return any(penalties)

    @property
    def keeps_scores(self) -> bool:
        """Whether scores are the logits."""
        warps = self.temperature != 1 or self.top_k or self.top_p != 1 or self.min_p
        return not (warps or self.counts or self.logit_bias or self.processors)

    @property
    def reads_text(self) -> bool:
        """Whether a processor looks at the tokens before a score."""
        return any(type(processor) not in PREFIX_FREE for processor in self.processors)

    def rows(self, batch: int) -> list[RowParams]:
        """Returns the parameters of each of `batch` rows, as a step applies them."""
        return [RowParams(self, row, batch) for row in range(batch)]


@dataclass(frozen=True)
class RowParams:
    """The parameters by which a row's scores are processed.

    Attributes:
        sampling: those of its request.
        row, batch: the row's number among the rows that were admitted with it, and their number,
            for processors that look at it.
        failed: what a processor that looks at the tokens raised, which ends the row.
    """

    sampling: SamplingParams
    row: int = 0
    batch: int = 1
    failed: list[Exception] = field(default_factory=list, compare=False)

    @property
    def ignored(self) -> int:
        """Ids at the prompt's beginning that the repetition penalty does not count."""
        return self.sampling.ignored[self.row] if self.sampling.ignored else 0

    def by_text(self, scores: Tensor, texts: list[list[int]]) -> Tensor:
        """Returns the host's processors on the scores of a block, `[entries, vocab]`.

        Args:
            scores: before them.
            texts: ids that each entry continues.
        """
        done = scores.clone()
        places: dict[tuple[int, ...], int] = {}
        lost: set[int] = set()
        for entry, text in enumerate(map(tuple, texts)):
            if places.setdefault(text, entry) != entry:
                continue  # padding
            above = places.get(text[:-1]) if text else None
            # A draft token that can't be accepted: plain decoding would not have shown a processor
            # what follows it, and it may have no answer.
            if above is not None and (above in lost or bool(done[above, text[-1]] == -torch.inf)):
                lost.add(entry)
            else:
                done[entry] = self._processed(scores[entry], text)
            if self.failed:
                return done.fill_(torch.nan)
        return done

    def _processed(self, scores: Tensor, text: tuple[int, ...]) -> Tensor:
        """One entry, as its row of a batch, so that row-aware processors find it."""
        ids = torch.tensor(text, dtype=torch.long, device=scores.device).expand(self.batch, -1)
        tiled = scores.expand(self.batch, -1).clone()
        try:
            for processor in self.sampling.processors:
                tiled = processor(ids, tiled)
        except Exception as error:
            self.failed.append(error)
        return tiled[self.row]


@dataclass(frozen=True)
class History:
    """What rows have read and said, for penalties.

    Attributes:
        seen: tokens of the prompt, `[rows, vocab]` bool.
        counts: how often the row said each token, `[rows, vocab]` int32.
    """

    seen: Tensor
    counts: Tensor

    @staticmethod
    def start(prompt: Tensor, rows: Sequence[RowParams], vocab: int) -> History:
        """Returns rows that have said nothing.

        Args:
            prompt: ids as `generate` received them, `[rows, width]`.
            rows: parameters of each.
            vocab: ids that scores are of; others have none to lower.
        """
        seen = torch.zeros(len(rows), vocab + 1, dtype=torch.bool, device=prompt.device)
        ignored = torch.tensor([[row.ignored] for row in rows], device=prompt.device)
        line = torch.arange(prompt.shape[1], device=prompt.device)
        seen.scatter_(1, prompt.clamp(max=vocab).masked_fill(line < ignored, vocab), True)
        seen = seen[:, :vocab]
        return History(seen, torch.zeros_like(seen, dtype=torch.int32))

    def count(self, tokens: Tensor, generated: Tensor) -> None:
        """Count the first `said [rows]` of `tokens [rows, most]`."""
        line = torch.arange(tokens.shape[1], device=tokens.device)
        self.counts.scatter_add_(1, tokens, (line < generated[:, None]).int())

    def select_rows(self, rows: Tensor) -> History:
        """Returns the history of the rows with these indices, `[selected]`."""
        return History(self.seen[rows], self.counts[rows])

    def merge(self, other: History) -> History:
        """Returns these rows, followed by those of `other`."""
        return History(torch.cat([self.seen, other.seen]), torch.cat([self.counts, other.counts]))

    def without_text(self, rows: int) -> History:
        """Returns the history of `rows` rows whose text does not matter."""
        return History(
            *(tensor.new_zeros(rows, tensor.shape[1]) for tensor in (self.seen, self.counts))
        )

    def to(self, device: torch.device) -> History:
        return History(self.seen.to(device), self.counts.to(device))

    def copy_to(self, device: torch.device) -> History:
        """Returns a copy that counts by itself."""
        return History(self.seen.to(device), self.counts.to(device, copy=True))


@dataclass(frozen=True)
class RowSampling:
    """`SamplingParams` of a batch; `None` is a setting that leaves all of its rows as they are.

    Attributes:
        greedy: rows whose best token takes every draw, among others that draw, `[rows]` bool.
        reads: rows for which it matters what was drafted above an entry, `[rows]` bool.
        temperature: `[rows]`.
        top_k: `[rows]` int64; 0 is neutral.
        most: the largest of them.
        tail: `1 - top_p`, `[rows]`; 0 is neutral.
        min_p: `[rows]`; 0 is neutral.
        repetition: `[rows]`; 1 is neutral.
        presence, frequency: `[rows]`; 0 is neutral.
        bias_ids, bias_values: `[rows, biases]`; 0 is neutral.
    """

    greedy: Tensor | None = None
    reads: Tensor | None = None
    temperature: Tensor | None = None
    top_k: Tensor | None = None
    maximum: int = 0
    tail: Tensor | None = None
    min_p: Tensor | None = None
    repetition: Tensor | None = None
    presence: Tensor | None = None
    frequency: Tensor | None = None
    bias_ids: Tensor | None = None
    bias_values: Tensor | None = None

    @staticmethod
    def of(rows: Sequence[RowParams], vocab: int, device: torch.device) -> RowSampling:
        """Returns the parameters of each row, sent to `device` in one piece.

        Raises:
            SoonerError: a bias of a token that the vocabulary does not have.
        """
        names = ("temperature", "top_k", "tail", "min_p", "repetition", "presence", "frequency")
        neutral = (1.0, 0, 0.0, 0.0, 1.0, 0.0, 0.0)
        settings = [row.sampling for row in rows]
        wide = max(len(row.logit_bias) for row in settings)
        lines = []
        for row in settings:
            if (token := max((token for token, _ in row.logit_bias), default=0)) >= vocab:
                raise SoonerError(f"a bias names token {token}, the model has ids below {vocab}")
            bias = [*row.logit_bias, *[(0, 0.0)] * (wide - len(row.logit_bias))]
            lines.append([
                row.temperature, row.top_k, 1 - row.top_p, row.min_p, row.repetition_penalty,
                row.presence_penalty, row.frequency_penalty, row.do_sample,
                row.reads_text or row.counts, *(token for token, _ in bias),
                *(value for _, value in bias),
            ])  # fmt: skip
        sent = torch.tensor(lines, dtype=torch.float64, device=device)  # holds ids exactly
        plain, ids, values = sent.split([9, wide, wide], 1)
        *columns, draws, flags = plain.unbind(1)
        fields: dict[str, Any] = {
            name: column.long() if name == "top_k" else column.float()
            for at, (name, column) in enumerate(zip(names, columns, strict=True))
            if any(line[at] != neutral[at] for line in lines)
        }
        return RowSampling(
            greedy=draws == 0 if len({row.do_sample for row in settings}) > 1 else None,
            reads=flags > 0 if any(row.reads_text or row.counts for row in settings) else None,
            maximum=min(max(row.top_k for row in settings), vocab),
            bias_ids=ids.long() if wide else None,
            bias_values=values.float() if wide else None,
            **fields,
        )

    @property
    def counts(self) -> bool:
        """Whether a penalty counts the generated tokens."""
        penalties = (self.repetition, self.presence, self.frequency)
        return any(value is not None for value in penalties)

    def penalise(self, scores: Tensor, history: History | None, paths: Paths | None) -> Tensor:
        """Biased and lowered scores, `[rows, entries, vocab]`: what comes before the warpers.

        Args:
            scores: fp32, `[rows, entries, vocab]`.
            history: of the rows, where `counts`.
            paths: of the entries, where `counts`; tokens on them count as said.
        """
        if self.bias_ids is None and history is None:
            return scores
        if history is None or paths is None or not paths.tokens.shape[1]:
            return by_entries(lambda part: self._penalise(part, history), scores)
        tokens = paths.tokens
        same = tokens[:, :, None] == tokens[:, None]  # [rows, nodes, nodes]
        above = paths.above.float() @ same.float()  # times that a token stands above an entry
        return by_entries(
            lambda part, times: self._penalise(part, history, tokens, times), scores, above
        )

    def _penalise(
        self,
        scores: Tensor,
        history: History | None,
        tokens: Tensor | None = None,
        above: Tensor | None = None,
    ) -> Tensor:
        """`penalise` for a few entries; `above [rows, entries, nodes]` says how often the token of
        a node stands above an entry."""
        if self.bias_ids is not None and self.bias_values is not None:
            entries = (-1, scores.shape[1], -1)
            index, values = self.bias_ids[:, None], self.bias_values[:, None]
            scores = scores.scatter_add(2, index.expand(entries), values.expand(entries))
        if history is None:
            return scores
        done = self._lower(scores, history.seen[:, None], history.counts[:, None])
        if tokens is None or above is None:
            return done
        # Only the scores of drafted tokens differ from the row's: they are worked out apart, the
        # same for all nodes of one token, and written over.
        index = tokens[:, None].expand_as(above)
        known = history.seen.gather(1, tokens)[:, None]
        count = history.counts.gather(1, tokens)[:, None] + above
        return done.scatter(2, index, self._lower(scores.gather(2, index), known, count))

    def _lower(self, scores: Tensor, seen: Tensor, counts: Tensor) -> Tensor:
        """Returns scores after the penalties for tokens that were said `counts` times."""
        is_generated = counts > 0
        if (penalty := _wide(self.repetition)) is not None:
            repeated = torch.where(scores < 0, scores * penalty, _divide(scores, penalty))
            scores = torch.where(seen | is_generated, repeated, scores)
        if (frequency := _wide(self.frequency)) is not None:
            scores = scores - frequency * counts
        if (presence := _wide(self.presence)) is not None:
            scores = scores - presence * is_generated
        return scores

    def warp(self, scores: Tensor, raw: Tensor, paths: Paths | None) -> Tensor:
        """Returns scores that tokens are drawn from, `[rows, entries, vocab]`; `raw` behind a token
        that can't be said, of which nobody asks what follows.
        """
        if any(
            value is not None for value in (self.temperature, self.top_k, self.tail, self.min_p)
        ):
            scores = by_entries(self._filter, scores)
        reads = None if paths is None else _wide(self.reads)
        if (greedy := _wide(self.greedy)) is None and reads is None:
            return scores
        lost = torch.zeros_like(scores[..., :1], dtype=torch.bool)  # [rows, entries, 1]
        if reads is not None and paths is not None:
            lost = paths.lost(scores)[..., None] & reads

        def finish(part: Tensor, raw: Tensor, lost: Tensor) -> Tensor:
            part = part if reads is None else torch.where(lost, raw, part)
            return part if greedy is None else _only_best(part, greedy)

        return by_entries(finish, scores, raw, lost)

    def _filter(self, scores: Tensor) -> Tensor:
        """Returns temperature, top-k, top-p and min-p of entries, `[rows, entries, vocab]`."""
        if (temperature := _wide(self.temperature)) is not None:
            scores = _divide(scores, temperature)
        if (k := _wide(self.top_k)) is not None:
            best = scores.topk(self.maximum).values
            last = best.gather(
                -1, (k - 1).clamp(0, self.maximum - 1).expand(-1, scores.shape[1], 1)
            )
            scores = scores.masked_fill((scores < last) & (k > 0), -torch.inf)
        if (tail := _wide(self.tail)) is not None:
            ranked, order = scores.sort(-1)  # ascending, as in HF, which keeps the last of equals
            outside = (ranked.softmax(-1).cumsum(-1) <= tail) & (tail > 0)
            outside[..., -1].fill_(False)
            scores = scores.masked_fill(torch.empty_like(outside).scatter(-1, order, outside),
                                        -torch.inf)  # fmt: skip
        if (share := _wide(self.min_p)) is not None:
            p = scores.softmax(-1)
            scores = scores.masked_fill(p < share * p.amax(-1, keepdim=True), -torch.inf)
        return scores


def _only_best(scores: Tensor, greedy: Tensor) -> Tensor:
    """Returns scores `[rows, entries, vocab]` with the best alone where `greedy [rows, 1, 1]`."""
    top, best = scores.max(-1, keepdim=True)
    certain = torch.where(top.isnan(), top, 0.0)  # bad logits are told of where they are drawn
    alone = torch.full_like(scores, -torch.inf).scatter_(-1, best, certain)
    return torch.where(greedy, alone, scores)


def _wide(setting: Tensor | None) -> Tensor | None:
    """Returns a setting by row, `[rows, 1, 1]`."""
    return None if setting is None else setting[:, None, None]


def _divide(scores: Tensor, setting: Tensor) -> Tensor:
    """Returns a quotient to the bit as of a Python number, whose inverse CUDA multiplies by."""
    return scores * setting.reciprocal() if scores.is_cuda else scores / setting


def by_entries(function: Callable[..., Tensor], scores: Tensor, *extra: Tensor) -> Tensor:
    """`function(scores, *others)`, for so many entries at once that few numbers are under way.

    How many parts there are depends on shapes alone. The result is that of the whole block, to the
    bit, as long as the function treats each entry for itself.

    Args:
        function: gives `[..., entries, any]` for parts of its arguments.
        scores: `[..., entries, vocab]`.
        extra: as many entries each, in the axis before the last.
    """
    if scores.dim() < 2 or scores.numel() <= MAX_NUMBERS:
        return function(scores, *extra)
    entries = scores.shape[-2]
    size = max(MAX_NUMBERS // (scores.numel() // entries), 1)
    if size >= entries:
        return function(scores, *extra)
    result: Tensor | None = None
    for start in range(0, entries, size):
        count = min(size, entries - start)
        part = function(*(tensor.narrow(-2, start, count) for tensor in (scores, *extra)))
        if result is None:
            result = part.new_empty(*part.shape[:-2], entries, part.shape[-1])
        result.narrow(-2, start, count).copy_(part)
    assert result is not None
    return result
