"""One processed distribution, shared by draft and target.

Hugging Face logits processors are honoured. Those that look only at the scores run once over the
whole block; the others see, for every block entry, the very prefix that plain decoding would have
shown them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation import logits_process as hf

from ..errors import BadLogitsError, UnsupportedError
from .noise import Purpose, RowNoise
from .rows import Parts
from .tree import Tree

Prefixes = Callable[[], list[list[list[int]]]]
"""Token ids that block entry `[row][entry]` continues; called only when a processor reads them."""

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

REFUSED = {
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "guidance_scale runs a second model forward "
    "with a cache of its own; leave guidance_scale unset",
    "SynthIDTextWatermarkLogitsProcessor": "SynthID keeps state from call to call, which "
    "speculation would corrupt; leave watermarking_config unset",
    "WhisperNoSpeechDetection": "it runs a model of its own; decode without it",
}


class Processing:
    """Turns logits into the scores or probabilities that tokens are chosen from.

    Args:
        processors: HF logits processors, in order.
        do_sample: whether tokens are drawn; otherwise the best score wins.
        batch: number of original rows; processors that look at the row index get it right.

    Raises:
        UnsupportedError: a processor keeps state that speculation would corrupt.
    """

    def __init__(
        self, processors: Sequence[LogitsProcessor] = (), do_sample: bool = False, batch: int = 1
    ) -> None:
        self._own = list(processors)
        self._draws = do_sample
        self._batch = batch
        self._reads_prefix = any(type(one) not in PREFIX_FREE for one in self._own)
        self._parts: Parts[Processing] = Parts(self)
        for one in self._own:
            if reason := REFUSED.get(type(one).__name__):
                raise UnsupportedError(f"{type(one).__name__} can't be honoured: {reason}")

    @property
    def processors(self) -> list[LogitsProcessor]:
        """Those of all rows."""
        return [one for part in self._parts.all for one in part._own]

    @property
    def do_sample(self) -> bool:
        """Whether any row draws."""
        return any(part._draws for part in self._parts.all)

    def watch(self, watcher: LogitsProcessor) -> None:
        """Show the logits of these rows to `watcher`, which changes nothing and reads no prefix,
        before any processor."""
        self._own.insert(0, watcher)

    def join(self, other: Processing, start: int, rows: int) -> None:
        """Process the `rows` original rows from `start` on as `other` did."""
        self._parts.join(other._parts, start, rows)

    def release(self, row: int) -> None:
        """Forget an original row that has ended."""
        self._parts.release(row)

    def scores(self, logits: Tensor, prefixes: Prefixes, row_ids: list[int]) -> Tensor:
        """Processed scores, fp32, `[rows, entries, vocab]` like `logits`.

        Where some rows draw and others do not, the best score of a row that does not becomes its
        only one, so that every draw takes it.

        Args:
            logits: `[rows, entries, vocab]`.
            prefixes: gives the token ids that each entry continues.
            row_ids: original row of each row of `logits`.
        """
        someone_draws = self.do_sample
        groups = self._groups(row_ids, someone_draws)
        if len(groups) == 1:
            part, rows, own = groups[0]
            return part._of_own(logits, prefixes, own, someone_draws)
        scores = torch.empty_like(logits, dtype=torch.float32)
        for part, rows, own in groups:
            index = torch.tensor(rows, device=logits.device)
            some = partial(_some, prefixes, rows)
            scores[index] = part._of_own(logits[index], some, own, someone_draws)
        return scores

    def _groups(
        self, row_ids: list[int], someone_draws: bool
    ) -> list[tuple[Processing, list[int], list[int]]]:
        """Lines of a tensor that are processed alike: by whom, which, and their own row numbers."""
        groups: dict[int, tuple[Processing, list[int], list[int]]] = {}
        for line, row in enumerate(row_ids):
            part, own = self._parts.of(row)
            is_raw = not part._own and part._draws == someone_draws  # whoever's they are
            _, lines, owns = groups.setdefault(0 if is_raw else id(part), (part, [], []))
            lines.append(line)
            owns.append(own)
        return list(groups.values())

    def _of_own(
        self, logits: Tensor, prefixes: Prefixes, row_ids: list[int], someone_draws: bool
    ) -> Tensor:
        """`scores` of rows of one group, which are numbered within it."""
        scores = self._processed(logits.float(), prefixes, row_ids)
        if self._draws or not someone_draws:
            return scores
        top, best = scores.max(-1, keepdim=True)
        certain = torch.where(top.isnan(), top, 0.0)  # bad logits are told of where they are drawn
        return torch.full_like(scores, -torch.inf).scatter_(-1, best, certain)

    def _processed(self, scores: Tensor, prefixes: Prefixes, row_ids: list[int]) -> Tensor:
        if not self._own:
            return scores
        if self._reads_prefix:
            return self._by_prefix(scores, prefixes(), row_ids)
        flat = scores.reshape(-1, scores.shape[-1])
        # Processors take input_ids first; the prefix-free ones never read them.
        unread = torch.empty(flat.shape[0], 0, dtype=torch.long, device=flat.device)
        for one in self._own:
            flat = one(unread, flat)
        return flat.view_as(scores)

    def _by_prefix(
        self, scores: Tensor, prefixes: list[list[list[int]]], row_ids: list[int]
    ) -> Tensor:
        done = scores.clone()
        for row, entries in enumerate(prefixes):
            places = {tuple(prefix): entry for entry, prefix in reversed([*enumerate(entries)])}
            lost: set[int] = set()
            for entry, prefix in enumerate(entries):
                above = places.get(tuple(prefix[:-1])) if prefix else None
                if above is not None and self._is_forbidden(
                    done[row, above], prefix[-1], above in lost
                ):
                    lost.add(entry)
                    continue
                done[row, entry] = self._one(scores[row, entry], prefix, row_ids[row])
        return done

    @staticmethod
    def _is_forbidden(above: Tensor, token: int, is_lost: bool) -> bool:
        """Whether a draft token can't be accepted, so that what follows it is never asked about:
        plain decoding would not have shown a processor such a prefix."""
        return is_lost or bool(above[token] == -torch.inf)

    def _one(self, scores: Tensor, prefix: list[int], row: int) -> Tensor:
        """Process one entry as row `row` of a batch, so that row-aware processors find it."""
        ids = torch.tensor(prefix, dtype=torch.long, device=scores.device).expand(self._batch, -1)
        tiled = scores.expand(self._batch, -1).clone()
        for one in self._own:
            tiled = one(ids, tiled)
        return tiled[row]

    def choose(self, scores: Tensor, tree: Tree, noise: RowNoise) -> Tensor:
        """The argmax of each entry, or one draw when sampling: `[rows, entries]`.

        Draws belong to a place: entries of one depth share their random number, so that whatever
        is drafted there, the target says what it would have said without a draft.

        Args:
            scores: of the block of `tree`, `[rows, 1 + nodes, vocab]`.
            tree: the draft.
            noise: of its rows; greedy decoding asks for none.
        """
        if not self.do_sample:
            return scores.argmax(-1)
        return pick(self.probabilities(scores), noise.uniforms(Purpose.TOKEN, tree.depths()))

    def probabilities(self, scores: Tensor) -> Tensor:
        """Softmax of processed scores, `[rows, entries, vocab]`, fp32."""
        return scores.softmax(-1)

    def broken(self, scores: Tensor) -> Tensor:
        """Where no token can be chosen, `[...]` bool of `scores [..., vocab]`.

        A NaN anywhere is one, and for a draw an infinite score, or no finite one at all.
        """
        if not self.do_sample:
            return scores.amax(-1).isnan()
        return ~scores.logsumexp(-1).isfinite()


def _some(prefixes: Prefixes, rows: list[int]) -> list[list[list[int]]]:
    every = prefixes()
    return [every[row] for row in rows]


def pick(weights: Tensor, uniforms: Tensor) -> Tensor:
    """One index of each row of `weights [..., vocab]`, by inversion of its running sum.

    Weights need not sum to one. An index of weight zero is never picked, whatever rounding does.
    One uniform number a row is all the randomness it takes, where `torch.multinomial` draws one
    for every token of the vocabulary. The sum runs in fp64, so that rare tokens behind a long
    vocabulary keep their share; of NaN some index is picked, for `Processing.broken` to report.

    Args:
        weights: non-negative, at least one of each row positive.
        uniforms: in `[0, 1)`, `[...]`.
    """
    mass = weights.cumsum(-1, dtype=torch.float64)
    total = mass[..., -1]
    mark = torch.minimum(uniforms * total, total.nextafter(torch.zeros_like(total)))
    index = torch.searchsorted(mass, mark[..., None], right=True)[..., 0]
    return index.clamp_(max=weights.shape[-1] - 1)


def bad_logits() -> BadLogitsError:
    """The error of a run whose next token can't be chosen."""
    return BadLogitsError(
        "the model returned NaN logits; use float32 or bfloat16 instead of float16, or check "
        "the weights"
    )
