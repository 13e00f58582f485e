"""The requests of an engine: from their arrival through their prefill to the batch that decodes."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import SoonerError, UnsupportedError
from ..methods import Method
from ..methods.context import to_device
from ..models.base import is_sharded
from .hf_border import Call, prepare
from .loop import Decoding, OnTokens, Session
from .noise import RowNoise, generator_of
from .rows import Reason
from .stats.deviation import Deviation
from .stats.run import EXACT, DraftCount

if TYPE_CHECKING:
    from .memory.manager import EngineMemory, PromptInfo

logger = logging.getLogger("sooner")


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities that the model itself gives at one token, before any processor.

    Attributes:
        token: the token that was generated.
        logprob: its log-probability.
        top: the likeliest tokens and their log-probabilities, best first.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]]

    @staticmethod
    def of(logits: Tensor, tokens: list[int], limit: int) -> list[TokenLogprobs]:
        """Returns log-probabilities behind `logits [tokens, vocab]`, with the `limit` likeliest."""
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
        seed, on_tokens, logprobs, num_draft_tokens, media_keys: see `Engine.add_request`.
        generated: ids that its one row generated before; it continues behind them.
        on_session: called with the session that decodes it, before its prompt is prefilled.
    """

    sampling: Mapping[str, Any]
    seed: int | None = None
    on_tokens: OnTokens | None = None
    logprobs: int | None = None
    num_draft_tokens: int | None = None
    media_keys: Sequence[str] = ()
    generated: Sequence[int] = ()
    on_session: Callable[[Session], None] = lambda session: None


@dataclass(eq=False)
class Request:
    """Holds a request, from its arrival to its last token.

    It waits, its prompt is prefilled chunk by chunk, its rows join those that decode, and it ends.
    An engine that counts pages may preempt it; then it waits again. Its inputs stay where they are
    until it begins, so requests that wait take no memory of a device.

    Attributes:
        inputs, options: as they were given.
        method: decodes it.
        rows: number of its rows.
        call: what transformers makes of inputs and options, begun; tensors on the model's device.
        tokens: the new tokens of each row, once the request has ended.
        finish_reasons: why each row ended, then.
        error: the error that ended it, if one did; `tokens` are those generated before.
        cached_tokens: prompt tokens whose keys and values were in the cache already.
        priority: requests with a lower number go first.
        deadline: when it ends at the latest, in seconds of `Engine.clock`; `None` is never.
        is_waiting: it has not begun, or was preempted and has not begun again.
        num_preemptions: how often it was preempted.
        prefill_seconds: time of its prefills, pictures included.
        round_seconds: its share of the rounds: each is divided by the rows that it decoded.
        logprobs: of each row's tokens, if they were asked for; added to before `on_tokens`.
        mode: `exact`, `relaxed` or `approximate`, once it decodes.
        drafts: what was verified so far, over all its rows; counted before `on_tokens` is called.
        deviations: of each row from its target's choices, where a tolerance accepts others.
        first: number of its first row in the batch, once it decodes.
        is_cancelled: its end was asked for, for the reason `cancelled_by`.
        needs_own_batch: its rows can't join those that decode now.
        number: its place in the order of arrival.
        prompt_info: its prompt, to an engine that counts pages.
        preempted: its row as it was when it was preempted.
        arrived, began: times of its arrival and of its first token, in seconds of `Engine.clock`.
        prefill: its rows while its prompt is prefilled, and until they join those that decode.
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
    deadline: float | None = None
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
    cancelled_by: Reason = field(default="cancelled", repr=False)
    needs_own_batch: bool = field(default=False, repr=False)
    number: int = field(default=0, repr=False)
    prompt_info: PromptInfo | None = field(default=None, repr=False)
    preempted: PreemptedRow | None = field(default=None, repr=False)
    arrived: float = field(default=0.0, repr=False)
    began: float = field(default=0.0, repr=False)
    prefill: Decoding | None = field(default=None, repr=False)
    _chunks: Iterator[None] = field(default=iter(()), repr=False)

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
        """The key that requests are sorted by: the first begins first, the last is preempted."""
        return self.priority, self.number

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.tokens is not None

    @property
    def is_prefilling(self) -> bool:
        """Whether its prompt is being prefilled, or waits to join the rows that decode."""
        return self.prefill is not None

    @property
    def finish_reason(self) -> Reason | None:
        """Returns why the first row ended; `None` before."""
        return self.finish_reasons[0] if self.finish_reasons else None

    @property
    def batch_rows(self) -> range:
        """Returns the numbers of its rows in the batch."""
        return range(self.first, self.first + self.rows)

    @property
    def num_drafts(self) -> int:
        """Rounds of its rows that had a draft."""
        return self.drafts.rounds

    @property
    def num_draft_tokens(self) -> int:
        """Draft tokens that were verified in them, all nodes of a tree."""
        return self.drafts.tokens

    def begin_prefill(self, rows: Decoding) -> None:
        """Stop waiting; `rows` are those of its prompt, none of which is prefilled yet."""
        self.prefill, self._chunks, self.is_waiting = rows, rows.prefill(), False

    def prefill_chunk(self) -> bool:
        """Prefills a chunk of its prompt; returns whether that was the last one."""
        return next(self._chunks, self) is self

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens of its longest row that its prefill forwards, without the cached ones."""
        assert self.prefill is not None
        session = self.prefill.session
        return max(session.prompt.lengths) - session.target.cache.prefix

    def stop_prefill(self) -> Decoding:
        """Prefill no more; returns its rows, which the caller closes."""
        rows, self.prefill = self.prefill, None
        assert rows is not None
        self._chunks.close()  # type: ignore[attr-defined]
        return rows

    def preempt(self, row: PreemptedRow) -> None:
        """Wait again, since its row was taken out of the batch, and continue from there later."""
        before = 0 if self.preempted is None else len(self.preempted.output)
        assert self.prompt_info is not None
        self.prompt_info = self.prompt_info.continued(row.output[before:])
        self.preempted, self.first, self.needs_own_batch = row, 0, False
        self.num_preemptions += 1

    def finish(
        self,
        tokens: list[list[int]],
        reasons: Reason | list[Reason],
        error: Exception | None = None,
    ) -> None:
        """End the request.

        Args:
            tokens: generated by each row since it last began.
            reasons: why rows ended, one for each or one for all.
            error: the error that ended it, if one did.
        """
        if self.preempted is not None:
            tokens = [[*self.preempted.output, *new] for new in tokens]
        self.tokens, self.error = tokens, error
        every = reasons if isinstance(reasons, list) else [reasons] * len(tokens)
        self.finish_reasons = [
            self.cancelled_by if reason == "cancelled" else reason for reason in every
        ]


Ending = tuple[Request, list[list[int]], Reason | list[Reason], Exception | None]
"""A request, and the arguments of its `finish`: tokens of each row, why they ended, the error."""


@dataclass(frozen=True)
class PreemptedRow:
    """Holds what a preempted row needs to continue.

    Attributes:
        output: all tokens that it has generated.
        limit: tokens that it may generate in all.
        seeds: of its draws, `[1]`.
    """

    output: list[int]
    limit: int | None
    seeds: Tensor

    @staticmethod
    def of(decoding: Decoding, original: int, before: PreemptedRow | None) -> PreemptedRow:
        """Returns a row of a batch, which may have been preempted before.

        Args:
            decoding: the batch.
            original: its row.
            before: the row as it was preempted last.
        """
        session, _ = decoding.session_of(original)
        new = list(decoding.rows.generated[original])
        if before is not None:
            return replace(before, output=[*before.output, *new])
        row = decoding.rows.active.index(original) if original in decoding.rows.active else 0
        seeds = decoding.state.noise.seeds[row : row + 1].clone()
        return PreemptedRow(new, session.stopping.limit, seeds)

    def restore(self, session: Session) -> None:
        """Makes a session, whose prompt ends with `output`, draw and end as this row would."""
        session.noise = RowNoise(self.seeds, session.noise.places)
        if self.limit is not None and session.stopping.limit is not None:
            left = self.limit - len(self.output)
            session.target.cache.capacity -= session.stopping.limit - left
            session.stopping.limit = left


class RunningBatch:
    """Requests whose prompts are prefilled, and the rows that they decode in.

    Args:
        memory: the engine's, if it counts pages.

    Attributes:
        requests: in the order in which they joined.
        decoding: their rows; `None` while there are none.
    """

    def __init__(self, memory: EngineMemory | None) -> None:
        self.memory = memory
        self.requests: list[Request] = []
        self.decoding: Decoding | None = None

    @property
    def active(self) -> int:
        """Rows that have not ended."""
        return 0 if self.decoding is None else len(self.decoding.rows.active)

    def merge(self, request: Request) -> bool:
        """Lets the rows of a prefilled request decode, unless they need a batch of their own.

        Returns:
            Whether they joined; then `request.prefill` is `None`.

        Raises:
            Exception: the error that broke a merge half-way; neither side can continue.
        """
        rows = request.prefill
        assert rows is not None
        if self.decoding is None:
            self.decoding = rows
        elif request.needs_own_batch:
            return False
        else:
            try:
                request.first = self.decoding.merge(rows)
            except UnsupportedError as refusal:
                request.needs_own_batch = True
                rows.stats.note(str(refusal))
                return False
        self.requests.append(request)
        request.prefill = None
        return True

    def round(self) -> None:
        """Decodes a round, and counts each request's share of its time."""
        assert self.decoding is not None
        requests = list(self.requests)
        active, began = list(self.decoding.rows.active), time.perf_counter()
        self.decoding.round()
        share = (time.perf_counter() - began) / len(active)
        for request in requests:
            rows = 1 if request.rows == 1 else sum(row in request.batch_rows for row in active)
            request.round_seconds += rows * share

    def output(self) -> list[tuple[float, int]]:
        """Returns of each request when it began, and the fewest tokens of a row of it since."""
        generated = [] if self.decoding is None else self.decoding.rows.generated
        return [
            (request.began, min(len(generated[row]) for row in request.batch_rows))
            for request in self.requests
        ]

    def allocate(self) -> bool:
        """Gives every row pages for a round; `False` if there are not enough for all."""
        if self.memory is None or self.decoding is None or not self.active:
            return True
        block = max(request.method.largest_block() for request in self.requests)
        return self.memory.allocate(self.decoding.session.target.cache, block)

    def preempt(self, request: Request) -> None:
        """Takes a request of one row out of the batch; it waits again."""
        assert self.decoding is not None
        row = PreemptedRow.of(self.decoding, request.first, request.preempted)
        if (strayed := self.decoding.stats.deviation) is not None:
            request.deviations = [strayed.release(request.first, request.deviations)]
        self.decoding.drop(request.first)
        self.decoding.release(request.first)
        self.requests.remove(request)
        request.preempt(row)

    def collect(self) -> Iterator[Ending]:
        """Takes out the requests whose last row has ended, or that failed or were cancelled.

        A batch without rows is closed after the last of them.
        """
        batch = self.decoding
        if batch is None:
            return
        for request in list(self.requests):
            rows = request.batch_rows
            error = next((batch.failed[row] for row in rows if row in batch.failed), None)
            if error is not None or request.is_cancelled:
                for row in rows:
                    batch.drop(row)
            if not set(batch.rows.active).isdisjoint(rows):
                continue
            self.requests.remove(request)
            reasons: Reason | list[Reason] = [batch.rows.reasons[row] for row in rows]
            if (strayed := batch.stats.deviation) is not None:
                request.deviations = [strayed.release(row, request.deviations) for row in rows]
            outputs = [batch.release(row) for row in rows]
            yield request, outputs, reasons if error is None else "error", error
        if not batch.rows.active:
            self.decoding = None
            close_batch(batch)
            if self.memory is not None:
                self.memory.keep(batch)

    def abandon(self, error: Exception) -> Iterator[Ending]:
        """Takes every request out, since an error keeps the whole batch from decoding."""
        batch, self.decoding = self.decoding, None
        requests, self.requests = self.requests, []
        assert batch is not None
        for request in requests:
            outputs = [list(batch.rows.generated[row]) for row in request.batch_rows]
            yield request, outputs, "error", error
        close_batch(batch)


class Prefiller:
    """Sets the requests of one engine up for their prefill.

    Args:
        model: a loaded HF model.
        memory: the engine's; without it every row gets the memory that it may ever need.
        max_rows: rows that decode together.
        chunk: prompt tokens of a row that are prefilled at once; `None` is all of them.
        launch: `graphs`, `compile` and `verify_every` of `sooner.generate`.

    Attributes:
        alarms: of the statistics of all requests.
        alone: why no request may join another, in words; `None` if they may.
    """

    def __init__(
        self,
        model: Any,
        memory: EngineMemory | None,
        *,
        max_rows: int,
        chunk: int | None,
        launch: Mapping[str, Any],
    ) -> None:
        self.model, self.memory = model, memory
        self.max_rows, self.chunk, self.launch = max_rows, chunk, launch
        self.alone: str | None = None
        self.alarms = Counter[str]()
        if is_sharded(model):
            self.alone = "a target under tp_plan decodes only rows that are admitted together"

    def begin(self, request: Request, batch: Decoding | None) -> bool:
        """Encodes a request's pixels and embeds its prompt, with memory for it.

        Args:
            request: one that waits.
            batch: the rows that it is to join.

        Returns:
            Whether it is ready for its first chunk; if not, there is no memory for it yet.

        Raises:
            SoonerError: it can't be honoured, or may need more memory than there is.
        """
        session = self._session(request, batch)
        if session is None:
            return False
        method = request.method
        if session.constraint is not None:
            name = type(self.model).__name__
            self.alone = f"{name} draws on a grid, and decodes only rows that are admitted together"
        message = f"{type(method).__name__} decodes only rows that are admitted together"
        if (reason := self.alone or (None if method.joins(method) else message)) is not None:
            session.stats.note(f"{reason}: each request has a batch of its own")
        if not session.target.adapter.may_split(session.prompt):
            session.prefill_chunk = None
        request.rows = session.rows.batch
        self.alarms.update(session.stats.alarms)
        session.drafts, session.stats.alarms = request.drafts, self.alarms
        session.max_draft = request.options.num_draft_tokens
        if (top := request.options.logprobs) is not None:
            request.logprobs = request.logprobs or [[] for _ in range(request.rows)]

            def keep(row: int, tokens: list[int], logits: Tensor) -> None:
                request.logprobs[row] += TokenLogprobs.of(logits, tokens, top)

            session.on_logits = keep
        request.begin_prefill(Decoding(session, batch))
        return True

    def _session(self, request: Request, batch: Decoding | None) -> Session | None:
        """Returns a request's session with memory for its prompt; `None` if there is none yet."""
        method, preempted = request.method, request.preempted
        options = request.options
        if request.call is None:
            device = self.model.get_input_embeddings().weight.device
            inputs = to_device(request.inputs, device)
            request.call = prepare(self.model, inputs, options.sampling)
            if request.call.kv_offload:
                raise UnsupportedError(
                    "cache_implementation='offloaded' can't be honoured in an engine, whose rows "
                    "come and go; use sooner.generate"
                )
        call = request.call
        generated = [*options.generated, *(() if preempted is None else preempted.output)]
        inputs, params, chunk = call.inputs, call.params, call.prefill_chunk
        if generated:
            inputs = _continued(inputs, generated)
            if params.max_new_tokens is not None:
                params = replace(params, max_new_tokens=params.max_new_tokens - len(generated))
        if chunk is None and not method.needs_whole_prompt:
            chunk = self.chunk

        def make() -> Session:
            with torch.no_grad():
                session = method.session(
                    self.model, inputs, params, generator=generator_of(self.model, options.seed),
                    on_tokens=options.on_tokens, prefill_chunk=chunk, generated=len(generated),
                    **self.launch,
                )  # fmt: skip
            options.on_session(session)
            session.target.cache.max_rows = self.max_rows
            if preempted is not None:
                preempted.restore(session)
            return session

        if self.memory is None or request.prompt_info is None:
            return make()
        opened = self.memory.open(make, request.prompt_info, method, batch)
        if opened is None:
            return None
        session, cached = opened
        if preempted is None:
            request.cached_tokens = cached
        return session


def close_batch(batch: Decoding) -> None:
    """Frees what a batch holds; a failure is only logged, since no request waits for it."""
    try:
        batch.close()
    except Exception:
        logger.exception("a batch could not be closed")


def _continued(inputs: Mapping[str, Any], generated: Sequence[int]) -> dict[str, Any]:
    """Returns inputs of one row with generated ids, taken as text, behind its prompt.

    Raises:
        SoonerError: there are more rows.
    """
    ids = inputs["input_ids"]
    if len(ids) != 1:
        raise SoonerError(f"generated= is for one row, and input_ids have {len(ids)}")
    more = {
        "input_ids": torch.tensor([list(generated)]),
        "attention_mask": torch.ones(1, len(generated)),
    }
    continued = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor) and value.shape == ids.shape:  # by token; kinds of text are 0
            tail = more.get(name, torch.zeros(1, len(generated))).to(value)
            continued[name] = torch.cat([value, tail], 1)
    return continued
