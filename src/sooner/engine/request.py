"""A request of an engine: what was asked for, what it said, and why it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..methods import Method
from .hf_border import Call
from .loop import OnTokens
from .rows import Reason
from .stats.deviation import Deviation
from .stats.run import EXACT, DraftCount

if TYPE_CHECKING:
    from .memory.manager import PromptInfo
    from .memory.preempted import InterruptedRow


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities that the model itself gives at one token, before any processor.

    Attributes:
        token: what was said.
        logprob: of it.
        top: the likeliest tokens and theirs, best first.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]]

    @staticmethod
    def of(logits: Tensor, tokens: list[int], limit: int) -> list[TokenLogprobs]:
        """Returns log-probabilities of `tokens`, generated after `logits [tokens, vocab]`, with
        the `limit` likeliest.
        """
        logprobs = logits.float().log_softmax(-1)
        chosen = logprobs.gather(1, torch.tensor(tokens, device=logprobs.device)[:, None])
        best = logprobs.topk(min(limit, logprobs.shape[-1]))
        rows = torch.cat([chosen, best.values, best.indices.to(logprobs)], 1).tolist()  # one read
        limit = best.values.shape[1]
        return [
            TokenLogprobs(
                token, logprobs, list(zip(map(int, rest[limit:]), rest[:limit], strict=True))
            )
            for token, (logprobs, *rest) in zip(tokens, rows, strict=True)
        ]


@dataclass(frozen=True)
class RequestOptions:
    """Holds the arguments of `Engine.add_request` beside the prompt.

    Attributes:
        sampling: arguments of `generate`.
        seed, on_tokens, logprobs, num_draft_tokens: see `Engine.add_request`.
        generated: ids that its one row said before; it goes on behind them.
    """

    sampling: Mapping[str, Any]
    seed: int | None = None
    on_tokens: OnTokens | None = None
    logprobs: int | None = None
    num_draft_tokens: int | None = None
    generated: Sequence[int] = ()


@dataclass(eq=False)
class Request:
    """A request that `Engine.add_request` has made, from its arrival to its last token.

    Attributes:
        inputs, options: as they were given.
        call: what transformers makes of them, once it has begun.
        method: how it is decoded.
        rows: of its batch.
        tokens: the new tokens of each row, once the request has ended.
        finish_reasons: why each row ended, then.
        cached_tokens: of its prompt, whose keys and values were there already.
        priority: who has less of it goes first.
        is_waiting: it has not begun, or made room for others and has not begun again.
        num_preemptions: how often it made room.
        prefill_seconds: that its prefills took, pictures included.
        round_seconds: its share of the rounds: each is divided by the rows that it decoded.
        error: what ended it, if that was an error; `tokens` are what it had said.
        logprobs: of each row's tokens, if they were asked for; added to before `on_tokens` is
            called.
        mode: `exact`, `relaxed` or `approximate`, once it decodes.
        drafts: what was verified so far, over all its rows; counted before `on_tokens` is called.
        deviations: of each row from its target's choices, where a tolerance accepts others.
        first: original row of the batch that it begins at, once it decodes.
        is_cancelled: its end was asked for.
        arrived, began: when it came, and had its first token, by an engine's pace.
    """

    inputs: Mapping[str, Any] = field(repr=False)
    options: RequestOptions = field(repr=False)
    method: Method
    rows: int
    call: Call | None = field(default=None, repr=False)
    tokens: list[list[int]] | None = None
    finish_reasons: list[Reason] = field(default_factory=list)
    error: Exception | None = None
    cached_tokens: int = 0
    priority: float = 0.0
    is_waiting: bool = True
    num_preemptions: int = 0
    prefill_seconds: float = 0.0
    round_seconds: float = 0.0
    logprobs: list[list[TokenLogprobs]] = field(default_factory=list, repr=False)
    mode: str = EXACT
    drafts: DraftCount = field(default_factory=DraftCount, repr=False)
    deviations: list[Deviation] = field(default_factory=list, repr=False)
    first: int = field(default=0, repr=False)
    is_cancelled: bool = field(default=False, repr=False)
    waits_alone: bool = field(default=False, repr=False)  # its rows can't join those that decode
    number: int = field(default=0, repr=False)  # in the order of admission
    prompt_info: PromptInfo | None = field(
        default=None, repr=False
    )  # to an engine that counts pages
    before: InterruptedRow | None = field(default=None, repr=False)
    arrived: float = field(default=0.0, repr=False)
    began: float = field(default=0.0, repr=False)

    @property
    def max_new_tokens(self) -> int | None:
        """Most new tokens of a row, once it has begun; `None` is no limit."""
        return None if self.call is None else self.call.params.max_new_tokens

    @property
    def has_pixels(self) -> bool:
        """Whether pictures or clips are to be encoded."""
        return any("pixel" in name for name in self.inputs)

    @property
    def order(self) -> tuple[float, int]:
        """Who has less of it goes first, and makes room last."""
        return self.priority, self.number

    def make_room(self, row: InterruptedRow) -> None:
        """Its row was taken out of the batch; it is to wait, and to go on from there."""
        before = 0 if self.before is None else len(self.before.output)
        assert self.prompt_info is not None
        self.prompt_info = self.prompt_info.continued(row.output[before:])
        self.before, self.first, self.waits_alone = row, 0, False
        self.num_preemptions += 1

    def end(
        self,
        tokens: list[list[int]],
        reasons: Reason | list[Reason],
        error: Exception | None = None,
    ) -> None:
        """It has ended.

        Args:
            tokens: of each row, said since it last began.
            reasons: of each row, or of all.
            error: what ended it, if that was an error.
        """
        if self.before is not None:
            tokens = [[*self.before.output, *new] for new in tokens]
        self.tokens, self.error = tokens, error
        self.finish_reasons = reasons if isinstance(reasons, list) else [reasons] * len(tokens)

    @property
    def finish_reason(self) -> Reason | None:
        """Returns why the first row ended; `None` before."""
        return self.finish_reasons[0] if self.finish_reasons else None

    @property
    def originals(self) -> range:
        """Returns the numbers of its rows in the batch."""
        return range(self.first, self.first + self.rows)

    @property
    def num_drafts(self) -> int:
        """Rounds of its rows that had a draft."""
        return self.drafts.rounds

    @property
    def num_draft_tokens(self) -> int:
        """What was verified in them, all nodes of a tree."""
        return self.drafts.tokens


Ending = tuple[Request, list[list[int]], Reason | list[Reason], Exception | None]
"""Arguments of a request's `end` behind it: new tokens of each row, why they ended, the error."""
