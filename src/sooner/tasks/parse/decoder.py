"""What a page's parsing asks of a model, and the decoder that answers with nothing beside it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from ...documents import PageDraft
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
            `None` where the drafts are made first.
        verification: options of `HSD`.
        prefill: a sparse one; the model's own by default.
        seconds, budget: see `RowListener`.
    """

    stage: str
    inputs: Mapping[str, Any] = field(repr=False)
    limits: Sequence[int]
    repetition: Sequence[int]
    drafts: Drafts | None = field(default=None, repr=False)
    late: Callable[[float | None], Coroutine[Any, Any, Drafts]] | None = None
    verification: Mapping[str, Any] = field(default_factory=dict)
    prefill: Prefill | None = None
    seconds: float | None = None
    budget: StageBudget | None = None

    def method(self, drafts: Any) -> Method:
        """Returns how it is decoded, with drafts or what makes them."""
        return Autoregressive() if drafts is None else HSD(drafts, **self.verification)


@dataclass(frozen=True)
class DecodeResult:
    """The rows of a request as they were decoded, and the figures of that."""

    rows: list[DecodedRow]
    stats: Stats


class PageDecoder(Protocol):
    """Decodes what one page asks for.

    Attributes:
        max_rows: of a request; what could be a larger batch is several. `None` is any.
    """

    max_rows: int | None

    def clock(self) -> float:
        """Returns the page's own seconds, by which times, budgets and costs are counted."""
        ...

    def decode(self, requests: Sequence[DecodeRequest]) -> Awaitable[list[DecodeResult]]:
        """Decode requests, side by side where that is possible."""
        ...

    def wait(self, late: Late) -> Awaitable[PageDraft | None]:
        """Wait for the page's draft."""
        ...


class SingleDecoder:
    """Decodes each request as one batch with nothing beside it; nothing that it does suspends.

    Args:
        model: that decodes.
        eos: ids that end a text.
    """

    max_rows: int | None = None

    def __init__(self, model: Any, eos: set[int]) -> None:
        self.model, self.eos = model, eos

    def clock(self) -> float:
        return time.perf_counter()

    async def decode(self, requests: Sequence[DecodeRequest]) -> list[DecodeResult]:
        try:
            return [decode_alone(request, self.model, self.eos) for request in requests]
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they hold what was allocated
            raise

    async def wait(self, late: Late) -> PageDraft | None:
        return late()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns what a coroutine returns that never suspends, without an event loop.

    Raises:
        Exception: what it raised.
    """
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise AssertionError("the coroutine waits for an event loop")


def decode_alone(request: DecodeRequest, model: Any, eos: set[int]) -> DecodeResult:
    """Decode one request. Late drafts are made behind its prefill."""
    began, late = time.perf_counter(), request.late

    def after_prefill() -> Drafts:
        assert late is not None
        return run_now(late(time.perf_counter() - began))

    method = request.method(request.drafts if late is None else after_prefill)
    rows, stats = decode_rows(
        model, request.inputs, method, request.limits, request.repetition, eos,
        request.prefill, request.seconds, request.budget,
    )  # fmt: skip
    return DecodeResult(rows, stats)
