"""When a row ends: HF stopping criteria, applied token by token inside an accepted run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria

from .rows import Reason, Rows
from .sampling import SamplingParams


class RowWatch(StoppingCriteria, ABC):
    """A stopping criterion of `sooner`'s own loop, which gets each row's new tokens on the host.

    Cheaper than HF's criteria, which are handed a tensor for every token, and it may keep a state
    for each row: it sees every committed token once, in order.
    """

    @abstractmethod
    def end(self, row: int, new: Sequence[int]) -> int | None:
        """Returns how many of the `new` tokens of original row `row` it may keep, 1 or more,
        if it ends within or behind them; `None` if it goes on.
        """

    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        """HF's own loop can't be watched: it shows no new tokens."""
        raise NotImplementedError(f"{type(self).__name__} needs sooner's decoding loop")


class Stopping:
    """Cuts a run of new tokens at the first one that ends the row.

    End-of-sequence ids and the length limit are checked on the host without a call; a `RowWatch` is
    asked once a commit; every other criterion is asked once a token with the prefix that plain
    decoding would have shown it.

    Args:
        params: of the rows.
    """

    def __init__(self, params: SamplingParams) -> None:
        self.first, self.batch = 0, 0  # original rows that these criteria are for; 0 rows are all
        self.limit, self.eos = params.max_new_tokens, set(params.stop_token_ids)
        self.watches = [each for each in params.criteria if isinstance(each, RowWatch)]
        self.criteria = [each for each in params.criteria if not isinstance(each, RowWatch)]

    @property
    def asks_host(self) -> bool:
        """Whether anything but stop ids and the limit ends rows, which only the host can ask."""
        return bool(self.criteria or self.watches)

    def budget(self, generated: int) -> int:
        """Returns how many more tokens a row may generate after `generated` ones."""
        return max(self.limit - generated, 0) if self.limit is not None else 1 << 30

    def tokens_left(self, rows: Rows) -> list[int] | None:
        """Tokens that each active row has yet to say, if all end by the limit alone and no others
        have joined; otherwise it is unknown, and the longest text is rarely the one whose drafts
        fail most."""
        if self.limit is None or self.eos or self.asks_host or self.batch:
            return None
        return [self.budget(len(rows.output(row))) for row in range(len(rows.active))]

    def reason(self, new: list[int]) -> Reason:
        """Returns why a row ended that the device has ended behind its tokens `new`."""
        return "stop" if new and new[-1] in self.eos else "length"

    def cut(self, rows: Rows, row: int, new: list[int]) -> tuple[list[int], Reason | None]:
        """Returns the part of `new` that active row `row` may keep, and why the row ends, if
        so.
        """
        new, ended = self._until_end(rows, row, new[: self.budget(len(rows.output(row)))])
        for watch in self.watches if new else ():
            if (count := watch.end(rows.active[row] - self.first, new)) is not None:
                new, ended = new[:count], "stop"
        return new, ended

    def _until_end(self, rows: Rows, row: int, new: list[int]) -> tuple[list[int], Reason | None]:
        for count, token in enumerate(new, start=1):
            if token in self.eos or self._wants_stop(rows, row, new[:count]):
                return new[:count], "stop"
        is_full = self.limit is not None and len(rows.output(row)) + len(new) >= self.limit
        return new, "length" if is_full else None

    def _wants_stop(self, rows: Rows, row: int, new: list[int]) -> bool:
        if not self.criteria:
            return False
        ids = torch.tensor([rows.prefix(row) + new], device=rows.device)
        # As one row of a batch of the original size: a criterion may look at the row index.
        ids = ids.expand(self.batch or rows.batch, -1)
        original = rows.active[row] - self.first
        return any(bool(_answer(criterion(ids, None), original)) for criterion in self.criteria)


def _answer(done: torch.Tensor | bool, row: int) -> bool:
    return bool(done[row]) if isinstance(done, torch.Tensor) and done.ndim else bool(done)


def cut_rows(
    drafted: Tensor, accepted: Tensor, bonus: Tensor, stop_ids: Tensor, budget: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns what `Stopping.cut` decides by end-of-sequence ids and limits, for all rows on the
    device.

    Args:
        drafted: tokens of the accepted path, padded with anything, `[rows, depth]`.
        accepted: how many of them are accepted, `[rows]`.
        bonus: the token behind them, `[rows]`.
        stop_ids: ids that end a row, padded with -1, `[rows or 1, ids]`.
        budget: tokens that a row may still generate, `[rows]`.

    Returns:
        How many of the row's `accepted + 1` new tokens it says, and whether it ends: `[rows]` each.
    """
    line = torch.arange(1 + drafted.shape[1], device=drafted.device)
    new = torch.cat([drafted, bonus[:, None]], 1).scatter(1, accepted[:, None], bonus[:, None])
    allowed = torch.minimum(accepted + 1, budget)
    stops = (new[..., None] == stop_ids[:, None]).any(-1) & (line < allowed[:, None])
    first = torch.where(stops, line + 1, len(line)).amin(1)  # tokens up to the first stop
    return torch.minimum(first, allowed), stops.any(1) | (budget <= accepted + 1)
