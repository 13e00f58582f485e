"""Requests of an engine on their way: set up for their prefill, then decoded together."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import SoonerError, UnsupportedError
from ..models.base import is_sharded
from .hf_border import prepare
from .loop import Decoding, Session
from .noise import generator_of
from .request import Ending, PreemptedRow, Request, TokenLogprobs
from .rows import Reason

if TYPE_CHECKING:
    from .memory.manager import EngineMemory


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
        """Returns, for each request, when it began, and the fewest tokens that a row of it has
        generated since.
        """
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
                request.deviations = [strayed.release(row) for row in rows]
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


logger = logging.getLogger("sooner")


class Prefiller:
    """Sets the requests of one engine up for their prefill.

    Args:
        model: a loaded HF model.
        memory: the engine's; without it every row gets the memory that it may ever need.
        max_rows: rows that decode together.
        chunk: prompt tokens of a row that are prefilled at once; `None` is all of them.
        launch: `graphs` and `compile` of `sooner.generate`.

    Attributes:
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
        session.drafts = request.drafts
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
            placed = {
                name: value.to(device) if isinstance(value, Tensor) else value
                for name, value in request.inputs.items()
            }
            request.call = prepare(self.model, placed, options.sampling)
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
                    self.model,
                    inputs,
                    params,
                    generator=generator_of(self.model, options.seed),
                    on_tokens=options.on_tokens,
                    prefill_chunk=chunk,
                    generated=len(generated),
                    **self.launch,
                )
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
