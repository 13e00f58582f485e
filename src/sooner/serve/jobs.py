"""What the HTTP side and the engine's thread tell each other: jobs, events, and the service.

A *job* is one choice of a request: `n` choices are `n` jobs. It is told its tokens as they are
committed, and then, exactly once, how it ended. Nothing here imports torch or a web framework.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from ..engine.request import TokenLogprobs

Reason = Literal["stop", "length", "cancelled", "error", "deadline"]
"""Why a job ended: a stop id, `max_tokens`, a hang-up, an error, or its deadline."""

ServiceState = Literal["warming", "ready", "draining", "failed"]


@dataclass(frozen=True)
class JobUsage:
    """What a job took; counts of tokens, and of speculation under vLLM's names.

    Attributes:
        prompt_tokens: of its prompt, those of pixels among them.
        completion_tokens: that it was told.
        cached_tokens: of the prompt, not prefilled because their pages were shared.
        accepted_prediction_tokens, rejected_prediction_tokens: of its `prediction`.
        mode: `exact`, `relaxed` or `approximate`.
        num_drafts: rounds that had a draft.
        num_draft_tokens: draft tokens that were verified; all nodes of a tree.
        acceptance_histogram: accepted draft tokens of a round -> number of rounds, the prefill not
            counted.
    """

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    mode: str = "exact"
    num_drafts: int = 0
    num_draft_tokens: int = 0
    acceptance_histogram: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Tokens:
    """Holds new tokens of a job.

    Attributes:
        ids: committed together, one or more.
        drafted: how many of them were drafted, from the first on.
        logprobs: one for each of them, if the job asked.
    """

    ids: list[int]
    drafted: int = 0
    logprobs: Sequence[TokenLogprobs] | None = None


@dataclass(frozen=True)
class Finished:
    """The end of a job, told exactly once, when its row is free.

    Attributes:
        result: what an engine gave that says no tokens, as a robot policy.
    """

    reason: Reason
    usage: JobUsage
    error: Exception | None = None
    result: Any = None


Event = Tokens | Finished
Sink = Callable[[Event], None]


def nobody(event: Event) -> None:
    """A sink that hears nothing."""


@dataclass(eq=False)
class GenerationJob:
    """Holds one choice of a request, from its arrival to its end.

    Attributes:
        id: of the request, and the number of the choice, for the log.
        inputs: what the model's processor returned: CPU tensors of one row.
        prompt_tokens: ids in `inputs`, placeholders of pixels among them.
        max_tokens: new tokens at most, 1 or more.
        events: told each event, in the engine's thread; must not block. If it raises, the client
            is taken to have left.
        arrived: when it came, in the clock's seconds.
        deadline: by when it has to be answered; `None` is whenever.
        sampling: options of `Engine.add_request` that say how it is sampled, `logprobs` among them.
        seed: the same seed gives the same tokens under any load (fp32); `None` draws one. Of 63
            bits.
        choice: its number among the `n` of a request; with the seed it is the key of the draws.
        stop_token_ids: ids that end it; the one that does is told, too.
        allowed_token_ids: all that it may say; empty is anything.
        prediction: token ids of OpenAI's `prediction`, HSD's draft.
        num_draft_tokens: most draft tokens of a round, on a path of a tree; 0 decodes plainly,
            `None` leaves it to the method.
        grammar: what masks its tokens, if anything does.
        media_keys: content hashes of its pictures and videos, for caches.

    The engine's loop alone writes the rest:

    Attributes:
        due: when it has to be answered, or counts as due; who has less of it goes first.
        output: ids that it has committed.
        request: the engine's, while that has it.
        is_prefilling: the engine has it, and it has committed nothing since it got its row.
        has_begun: it has had a row.
        is_lost: its client can't be told anything.
        failure: what its own tokens ran into.
        first_at, reported_at, ended_at: when it was told its first token, its last ones, its end.
        preemptions: how often it lost its row.
        draft_rounds, draft_tokens: as `JobUsage.num_drafts` and `num_draft_tokens`, so far.
        accepted: as `JobUsage.acceptance_histogram`.
    """

    id: str
    inputs: Mapping[str, Any] = field(repr=False)
    prompt_tokens: int
    max_tokens: int
    events: Sink = field(default=nobody, repr=False)
    arrived: float = 0.0
    deadline: float | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    choice: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    allowed_token_ids: frozenset[int] = frozenset()
    prediction: list[int] | None = field(default=None, repr=False)
    num_draft_tokens: int | None = None
    grammar: Any | None = field(default=None, repr=False)
    media_keys: tuple[str, ...] = ()
    due: float = field(default=math.inf, repr=False)
    output: list[int] = field(default_factory=list, repr=False)
    request: Any = field(default=None, repr=False)
    is_prefilling: bool = field(default=False, repr=False)
    has_begun: bool = field(default=False, repr=False)
    is_lost: bool = field(default=False, repr=False)
    failure: Exception | None = field(default=None, repr=False)
    first_at: float | None = field(default=None, repr=False)
    reported_at: float = field(default=0.0, repr=False)
    ended_at: float = field(default=0.0, repr=False)
    preemptions: int = field(default=0, repr=False)
    draft_rounds: int = field(default=0, repr=False)
    draft_tokens: int = field(default=0, repr=False)
    accepted: Counter[int] = field(default_factory=Counter, repr=False)

    @property
    def is_waiting(self) -> bool:
        """Whether it has no row: the engine does not have it, or took its row for another."""
        return self.request is None or getattr(self.request, "is_waiting", False)

    @property
    def order(self) -> tuple[float, float]:
        """Says which jobs go first: those with less of it go first."""
        return self.due, self.arrived

    def usage(self, request: Any = None) -> JobUsage:
        """Returns what it took.

        Args:
            request: the engine's, if it had one.
        """
        accepted = dict(sorted(self.accepted.items()))
        expected = len(self.prediction or ())
        right = min(sum(size * rounds for size, rounds in accepted.items()), expected)
        return JobUsage(
            self.prompt_tokens,
            len(self.output),
            getattr(request, "cached_tokens", 0),
            right,
            expected - right,
            getattr(request, "mode", "exact"),
            self.draft_rounds,
            self.draft_tokens,
            accepted,
        )


def seed_of(job: GenerationJob) -> int:
    """Returns what keys a job's draws, 63 bits: its seed and the number of the choice.

    The first choice has the seed itself, so it says what `sooner.generate` says under it.
    """
    seed = job.seed
    if seed is None:
        return secrets.randbits(63)
    mixed = (seed + job.choice * 0x9E3779B97F4A7C15) % (1 << 64)
    if job.choice:
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = ((mixed ^ (mixed >> shift)) * factor) % (1 << 64)  # SplitMix64's finaliser
        mixed ^= mixed >> 31
    return mixed % (1 << 63)


@dataclass(frozen=True)
class ServiceLoad:
    """What a service holds at a moment.

    Attributes:
        running: jobs that are prefilled or decode.
        waiting: jobs that are not begun, or were preempted.
        pages_used, pages: of the engine's memory; `pages` is 0 where nobody counts them.
    """

    running: int
    waiting: int
    pages_used: int = 0
    pages: int = 0


class EngineLike(Protocol):
    """What `sooner.Engine` is to the engine's thread; robot policies have another, tests a stub.

    It may have `pages` and `pages_used` of its memory, too. Its requests have `tokens` and `error`
    as `engine.request.Request`, and may have the rest of that.

    Attributes:
        max_rows: requests that decode together.
        queued: requests that wait, of which it has not been told.
    """

    max_rows: int
    queued: int

    @property
    def is_idle(self) -> bool: ...

    def add_request(self, inputs: Mapping[str, Any], **options: Any) -> Any: ...

    def step(self) -> list[Any]: ...

    def cancel(self, request: Any) -> None: ...
