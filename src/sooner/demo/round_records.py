"""Notes what every round of a run drafted, verified and committed, and when; as plain data too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..engine.interface import Outcome
from ..engine.loop import Session
from ..engine.row_sampling import SamplingParams
from ..engine.rows import Rows
from ..engine.tree import Tree
from ..errors import SoonerError
from ..methods import Method
from ..tasks.detokenizer import Detokenizer, special_ids

ORIGINS = {
    "plain": "target", "prompt-lookup": "lookup", "onsd": "draft", "eagle": "head",
    "dflash": "head", "ddtree": "head",
}  # fmt: skip
"""Who proposes the tokens of a method; any other has a draft model."""


LIVE = 0.15
"""Seconds between two reports of a run that goes on."""


class StoppedError(SoonerError):
    """Is raised when somebody has stopped the run."""


@dataclass(frozen=True)
class Live:
    """A recording that goes on.

    Attributes:
        show: called with the record so far; its `live` says what happens now.
        is_stopped: returns whether to end with `StoppedError`.
    """

    show: Callable[[dict[str, Any]], None] = lambda record: None
    is_stopped: Callable[[], bool] = lambda: False

    def check(self) -> None:
        """Raises `StoppedError` if the recording was stopped."""
        if self.is_stopped():
            raise StoppedError("stopped; run it again for the whole answer")

    def stage(self, text: str) -> None:
        """Shows what happens now."""
        self.check()
        self.show({"kind": "race", "live": text})


UNSEEN = Live()
"""A recording that nobody watches or stops."""


@dataclass
class RoundRecord:
    """One round of row 0; times are seconds since the run began, on the host.

    Attributes:
        drafting: drafting began; `None` in the prefill's round.
        verifying: the target's forward began.
        ended: the host knew the verdict.
        tokens: committed.
        drafted: how many of them, from the first on, the draft had proposed.
        logprobs: the target's log-probability of each committed token, before any temperature;
            a device tensor, so that nobody waits.
        tree: what was verified, `(tokens, parents, nodes)` on the device.
    """

    verifying: float
    drafting: float | None = None
    ended: float = 0.0
    tokens: list[int] = field(default_factory=list)
    drafted: int = 0
    logprobs: Tensor | None = None
    tree: tuple[Tensor, ...] | None = None

    def nodes(self) -> tuple[list[int], list[int]]:
        """Returns tokens and parents of what was verified; a parent of -1 is the text so far."""
        if self.tree is None:
            return [], []
        tokens, parents, size = self.tree
        count = int(size)
        return tokens[:count].tolist(), parents[:count].tolist()

    def path(self) -> list[int]:
        """Returns nodes that were accepted, top level first; siblings are distinct tokens."""
        tokens, parents = self.nodes()
        result, above = [], -1
        nodes = list(zip(parents, tokens, strict=True))
        for token in self.tokens[: self.drafted]:
            above = nodes.index((above, token))
            result.append(above)
        return result


class Watch:
    """What one run of one row did.

    Args:
        live: checked after each round.
        on_round: receives the rounds so far, `LIVE` seconds apart; the run's clock stops meanwhile.

    Attributes:
        rounds: the prefill's first.
    """

    def __init__(
        self, live: Live, on_round: Callable[[list[RoundRecord]], None] = lambda rounds: None
    ) -> None:
        self.live, self.on_round = live, on_round
        self.rounds: list[RoundRecord] = []
        self.drafter: Any = None
        self._began = time.perf_counter()
        self._drafting: float | None = None
        self._pauses: list[tuple[float, float]] = []  # when `on_round` began and ended
        self._next = 0.0

    def attach(self, session: Session) -> None:
        """Listen to a session that has not begun."""
        drafter: Any = session.drafter
        propose, on_verify_start = drafter.propose, drafter.on_verify_start
        self.drafter, on_tokens = drafter, session.on_tokens

        def draft(outcome: Outcome) -> Tree:
            self._drafting = self.now()
            tree: Tree = propose(outcome)
            return tree

        def verify(pending: Tree, rows: Rows) -> None:
            snapshot = None
            if pending.nodes and pending.rows:
                # Copies: a drafter may use its buffers again.
                parts = pending.tokens, pending.parents, pending.sizes
                snapshot = tuple(part[0].clone() for part in parts)
            self.rounds.append(RoundRecord(self.now(), self._drafting, tree=snapshot))
            self._drafting = None
            on_verify_start(pending, rows)

        def listen(row: int, new: list[int], raw: Tensor) -> None:
            index = torch.tensor(new, device=raw.device)[:, None]
            self.rounds[-1].logprobs = raw.float().log_softmax(-1).gather(1, index)[:, 0]

        def commit(row: int, new: list[int], drafted: int) -> None:
            if on_tokens is not None:
                on_tokens(row, new, drafted)
            self._commit(new, drafted)

        drafter.propose, drafter.on_verify_start = draft, verify
        session.on_logits, session.on_tokens = listen, commit

    def start(self) -> None:
        self._began, self._pauses = time.perf_counter(), []

    def now(self, when: float | None = None) -> float:
        """Returns seconds of the run, at a time of `time.perf_counter`; by default now."""
        when = time.perf_counter() if when is None else when
        paused = sum(max(min(end, when) - begin, 0.0) for begin, end in self._pauses)
        return when - self._began - paused

    def draft_overlaps(self) -> list[tuple[float, float]]:
        """Returns spans of a draft's forwards beside the target, in seconds of the run, if any."""
        spans: list[tuple[float, float]] = getattr(self.drafter, "forward_spans", list)()
        return [(self.now(begin), self.now(end)) for begin, end in spans]

    def _commit(self, new: list[int], drafted: int) -> None:
        record = self.rounds[-1]
        record.ended, record.tokens, record.drafted = self.now(), list(new), drafted
        self.live.check()
        if record.ended >= self._next:
            began, self._next = time.perf_counter(), record.ended + LIVE
            self.on_round(self.rounds)
            self._pauses.append((began, time.perf_counter()))


@dataclass(frozen=True)
class Watched(Method):
    """A method whose runs are noted; what it says is the method's own."""

    method: Method
    watch: Watch

    def session(
        self, model: Any, inputs: Mapping[str, Any], params: SamplingParams, **options: Any
    ) -> Session:
        self.watch.start()
        session = self.method.session(model, inputs, params, **options)
        self.watch.attach(session)
        return session


def lane(rounds: Sequence[RoundRecord], tokenizer: Any, origin: str) -> dict[str, Any]:
    """Returns a run as plain data: `tokens`, each with its text, origin, probability, round and
    depth (0: the target's own), and `rounds` with times, draft and accepted path.
    """
    detokenizer = Detokenizer(tokenizer, special_ids(tokenizer))
    word = cache(lambda token: tokenizer.decode([token]) or "·")
    rounds = [item for item in rounds if item.tokens]
    tokens: list[dict[str, Any]] = []
    entries = []
    for number, item in enumerate(rounds):
        chances = [] if item.logprobs is None else item.logprobs.exp().tolist()
        path = item.path()
        for index, token in enumerate(item.tokens):
            is_drafted = index < item.drafted
            tokens.append(
                {
                    "t": detokenizer.add(token),
                    "o": origin if is_drafted else "target",
                    "p": _rounded(chances[index]) if index < len(chances) else None,
                    "r": number,
                    "d": index + 1 if is_drafted else 0,
                    "n": path[index] if is_drafted else None,
                }
            )
        nodes, parents = item.nodes()
        entries.append(
            {
                "s": None if item.drafting is None else _rounded(item.drafting),
                "v": _rounded(item.verifying),
                "e": _rounded(item.ended),
                "n": len(item.tokens),
                "draft": [word(node) for node in nodes],
                "parents": parents,
                "path": path,
            }
        )
    return {
        "tokens": tokens, "rounds": entries, "first": entries[0]["e"] if entries else 0.0,
        "seconds": entries[-1]["e"] if entries else 0.0,
    }  # fmt: skip


def _rounded(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None
