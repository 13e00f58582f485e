"""Requests of an engine on their way to decode: set up, then prefilled a chunk at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import SoonerError
from ..models.ranks import Ranks
from .hf_border import prepare
from .loop import Decoding, Session
from .noise import generator_of
from .request import Ending, Request, TokenLogprobs
from .rows import Reason

if TYPE_CHECKING:
    from .memory.manager import EngineMemory
    from .memory.preempted import InterruptedRow

logger = logging.getLogger("sooner")


@dataclass(eq=False)
class PrefillingRequest:
    """A request whose prompt is being prefilled, or that waits to join those that decode.

    Attributes:
        request: what was asked for.
        decoding: its rows.
        chunks: of its prompt, each prefilled when it is asked for.
    """

    request: Request
    decoding: Decoding
    chunks: Iterator[None]

    def run_chunk(self) -> bool:
        """Prefill a chunk; returns whether the prompt is done with it."""
        return next(self.chunks, self) is self

    @property
    def tokens(self) -> int:
        """Prompt tokens of its longest row that were forwarded, and not found in the cache."""
        session = self.decoding.session
        return max(session.prompt.lengths) - session.target.cache.prefix

    def end(self, reason: Reason | None, error: Exception | None) -> Ending:
        """Prefill no more, since it never decodes; `None` is for the rows' own reasons."""
        self.chunks.close()  # type: ignore[attr-defined]
        rows, stats = self.decoding.rows, self.decoding.stats
        reasons = (
            [rows.reasons[row] for row in range(self.request.rows)] if reason is None else reason
        )
        if (strayed := stats.deviation) is not None:
            self.request.deviations = [strayed.of(row) for row in range(self.request.rows)]
            stats.deviation = None  # the batch never had these rows
        return self.request, rows.generated, reasons, error

    def interrupt(self) -> InterruptedRow:
        """Prefill no more for now; returns what its one row has to go on from."""
        from .memory.preempted import InterruptedRow  # by an engine that counts pages

        self.chunks.close()  # type: ignore[attr-defined]
        row = InterruptedRow.of(self.decoding, 0, self.request.before)
        close_batch(self.decoding)
        return row

    def close(self) -> None:
        """Let go of what its rows hold."""
        self.decoding.failed.clear()  # an error's frames hold what holds the error
        close_batch(self.decoding)


class Prefiller:
    """Sets the requests of one engine up for their prefill.

    Args:
        model: a loaded HF model.
        memory: the engine's; without it every row is given what it may ever need.
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
        if Ranks.of(model) is not None:
            self.alone = "a target under tp_plan decodes only rows that are admitted together"

    def open(self, request: Request, batch: Decoding | None) -> PrefillingRequest | None:
        """Encode a request's pixels and embed its prompt, with memory for it.

        Args:
            request: which is to begin, or to go on.
            batch: the rows that it is to join.

        Returns:
            The request before its first chunk; `None` if there is no memory for it yet.

        Raises:
            SoonerError: it can't be honoured, or may need more memory than there is.
        """
        session = self._session(request, batch)
        if session is None:
            return None
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
        decoding = Decoding(session, batch)
        return PrefillingRequest(request, decoding, decoding.prefill())

    def _session(self, request: Request, batch: Decoding | None) -> Session | None:
        """Returns a request's session with memory for its prompt; `None` if there is none yet."""
        method, before = request.method, request.before
        options = request.options
        if request.call is None:
            request.call = prepare(self.model, request.inputs, options.sampling)
        call = request.call
        generated = [*options.generated, *(() if before is None else before.output)]
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
            if before is not None:
                before.go_on(session)
            return session

        if self.memory is None or request.prompt_info is None:
            return make()
        cache = None if batch is None else batch.session.target.cache
        opened = self.memory.open(make, request.prompt_info, method, cache)
        if opened is None:
            return None
        session, cached = opened
        self.memory.slots.serve(session, batch)
        if before is None:
            request.cached_tokens = cached
        return session


def close_batch(batch: Decoding) -> None:
    """Let go of what a batch holds; nobody waits for it, so a failure of that is only logged."""
    try:
        batch.close()
    except Exception:
        logger.exception("a batch could not be closed")


def _continued(inputs: Mapping[str, Any], generated: Sequence[int]) -> dict[str, Any]:
    """Returns inputs of one row with ids behind its prompt, which are text whatever they are.

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
