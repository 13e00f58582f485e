"""A page's parsing as steps that ask for texts, whoever decodes them and beside what else."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from ...engine.stats.run import Stats
from ...methods import HSD, Autoregressive, Method
from ..prefill import Prefill
from .budget import StageBudget
from .decoding import DecodedRow, decode_rows
from .result import Late

T = TypeVar("T")

Drafts: TypeAlias = list[Any]
"""The drafts of each row, as `HSD` takes them."""

Clock: TypeAlias = Callable[[], float]
"""Seconds that were spent on a page so far."""


@dataclass(frozen=True)
class DecodeRequest:
    """Rows to be decoded greedily.

    Attributes:
        stage: `regions` or `page`.
        inputs: what the processor returned, `input_ids [rows, width]`.
        limits, repetition: of each row, see `RowListener`.
        drafts: of each row; `None` decodes plainly.
        late: makes the drafts in their place. It is given the seconds that the prefill took, or
            `None` where the drafts are made first, and itself asks for what it needs.
        verification: options of `HSD`.
        prefill: a sparse one; the model's own by default.
        seconds, budget: see `RowListener`.
    """

    stage: str
    inputs: Mapping[str, Any] = field(repr=False)
    limits: Sequence[int]
    repetition: Sequence[int]
    drafts: Drafts | None = field(default=None, repr=False)
    late: Callable[[float | None], Steps[Drafts]] | None = None
    verification: Mapping[str, Any] = field(default_factory=dict)
    prefill: Prefill | None = None
    seconds: float | None = None
    budget: StageBudget | None = None

    def method(self, drafts: Any) -> Method:
        """Returns how it is decoded, with drafts or what makes them."""
        return Autoregressive() if drafts is None else HSD(drafts, **self.verification)


@dataclass(frozen=True)
class DecodeResult:
    """What the rows of a request said, and the figures of that."""

    rows: list[DecodedRow]
    stats: Stats


StepRequest: TypeAlias = Sequence[DecodeRequest] | Late
"""Texts that may be decoded side by side; or a page's draft, to be waited for."""

Steps: TypeAlias = Generator[StepRequest, Any, T]
"""Asks for one `Asked` after the other. It is sent a list of results, or the draft, or what went
wrong is raised in it. In the end it returns what came of all that."""


def run_alone(steps: Steps[T], model: Any, eos: set[int]) -> T:
    """Go through steps with nothing beside them: each request is one batch.

    Args:
        model: that decodes.
        eos: ids that end a text.

    Raises:
        Exception: what the steps raised.
    """
    reply, error = None, None
    while True:
        try:
            request = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as ended:
            return ended.value
        reply, error = None, None
        try:
            reply = (
                request()
                if callable(request)
                else [decode_alone(item, model, eos) for item in request]
            )
        except Exception as raised:
            traceback.clear_frames(raised.__traceback__)  # they hold what was allocated
            error = raised


def decode_alone(request: DecodeRequest, model: Any, eos: set[int]) -> DecodeResult:
    """Decode one request. Late drafts are made behind its prefill."""
    began, late = time.perf_counter(), request.late

    def after_prefill() -> Drafts:
        assert late is not None
        return run_alone(late(time.perf_counter() - began), model, eos)

    method = request.method(request.drafts if late is None else after_prefill)
    rows, stats = decode_rows(
        model, request.inputs, method, request.limits, request.repetition, eos,
        request.prefill, request.seconds, request.budget,
    )  # fmt: skip
    return DecodeResult(rows, stats)


def drafts_first(steps: Steps[T]) -> Steps[T]:
    """Returns the same steps, but that what makes a request's drafts is asked for in front
    of it.
    """
    reply, error = None, None
    while True:
        try:
            request = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as ended:
            return ended.value
        reply, error = None, None
        try:
            if not callable(request):
                request = yield from _with_drafts(request)
            reply = yield request
        except Exception as raised:
            error = raised


def _with_drafts(requests: Sequence[DecodeRequest]) -> Steps[list[DecodeRequest]]:
    made = []
    for request in requests:
        if request.late is not None:
            drafts = yield from drafts_first(request.late(None))
            request = replace(request, drafts=drafts, late=None)
        made.append(request)
    return made
