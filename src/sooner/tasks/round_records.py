"""Notes what every round of a run drafted, verified and committed, and when; as plain data too."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from ..engine.interface import Drafter, Outcome
from ..engine.loop import Session
from ..engine.row_sampling import SamplingParams
from ..engine.rows import Rows
from ..engine.tree import Tree
from ..errors import SoonerError
from ..methods import Method

ORIGINS = {
    "plain": "target", "prompt-lookup": "lookup", "onsd": "draft", "eagle": "head",
    "dflash": "head", "ddtree": "head", "sparse-to-dense": "short",
}  # fmt: skip
"""Who proposes the tokens of a method; any other has a draft model."""


class StoppedError(SoonerError):
    """Is raised when somebody has stopped the run."""


def stop_if(is_stopped: Callable[[], bool]) -> None:
    """Raises `StoppedError` if so."""
    if is_stopped():
        raise StoppedError("stopped; run it again for the whole answer")


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
        """Returns nodes that were accepted, from the first level down; siblings are distinct
        tokens.
        """
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
        on_round: told the rounds so far, after each.
        is_stopped: asked after each round; if so, the run ends with `StoppedError`.

    Attributes:
        rounds: the prefill's first.
    """

    def __init__(
        self,
        on_round: Callable[[list[RoundRecord]], None] = lambda rounds: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.on_round, self.is_stopped = on_round, is_stopped
        self.rounds: list[RoundRecord] = []
        self.drafter: Drafter | None = None
        self._began = time.perf_counter()
        self._drafting: float | None = None
        self._logprobs: Tensor | None = None
        self._aside = 0.0  # seconds that `on_round` took, which are not the run's
        self._asides: list[tuple[float, float, float]] = []  # begin, end, `_aside` until its begin

    def attach(self, session: Session) -> None:
        """Listen to a session that has not begun."""
        drafter: Any = session.drafter
        self.drafter = drafter
        propose, on_verify_start = drafter.propose, drafter.on_verify_start
        logits, tokens = session.on_logits, session.on_tokens

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
            if row == 0:
                self._logprobs = raw.float().log_softmax(-1).gather(1, index)[:, 0]
            if logits is not None:
                logits(row, new, raw)

        def commit(row: int, new: list[int], drafted: int) -> None:
            if tokens is not None:
                tokens(row, new, drafted)
            if row == 0:
                self._commit(new, drafted)

        drafter.propose, drafter.on_verify_start = draft, verify
        session.on_logits, session.on_tokens = listen, commit

    def start(self) -> None:
        self._began, self._aside, self._asides = time.perf_counter(), 0.0, []

    def now(self) -> float:
        return time.perf_counter() - self._began - self._aside

    def draft_overlaps(self) -> list[tuple[float, float]]:
        """Returns when forwards of a draft that works beside the target began and ended, in the
        run's seconds; none for drafts that take turns with it. A forward within `on_round` takes
        none."""
        spans: list[tuple[float, float]] = getattr(self.drafter, "forward_spans", list)()
        return [(self._in_run(begin), self._in_run(end)) for begin, end in spans]

    def _in_run(self, when: float) -> float:
        """Returns seconds of the run at a time of `time.perf_counter`."""
        before = bisect_right(self._asides, (when, math.inf, math.inf))
        if not before:
            return when - self._began
        # The run's clock stands still within an aside, so that no span ends before it begins.
        begin, end, aside = self._asides[before - 1]
        return when - self._began - aside - (min(when, end) - begin)

    def _commit(self, new: list[int], drafted: int) -> None:
        record = self.rounds[-1]
        record.ended, record.tokens, record.drafted = self.now(), list(new), drafted
        record.logprobs = self._logprobs
        began = time.perf_counter()
        stop_if(self.is_stopped)
        self.on_round(self.rounds)
        ended = time.perf_counter()
        self._asides.append((began, ended, self._aside))
        self._aside += ended - began


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


class TokenPieces:
    """The letters that each token adds to a text, found once.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._words: dict[int, str] = {}

    def word(self, token: int) -> str:
        """Returns a token by itself."""
        if token not in self._words:
            self._words[token] = self.tokenizer.decode([token]) or "·"
        return self._words[token]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Returns what each token adds; detokenizers join punctuation and bytes, so a few tokens
        before it are looked at.
        """
        result = []
        for index in range(len(tokens)):
            start = max(index - 6, 0)
            before, whole = self._text(tokens[start:index]), self._text(tokens[start : index + 1])
            same = takewhile(lambda pair: pair[0] == pair[1], zip(before, whole, strict=False))
            result.append(whole[len(list(same)) :])
        return result

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


def lane(rounds: Sequence[RoundRecord], texts: TokenPieces, origin: str) -> dict[str, Any]:
    """Returns a run as plain data: `tokens`, each with its text, origin, probability, round and
    depth (0: the target's own), and `rounds` with times, draft and accepted path.
    """
    rounds = [item for item in rounds if item.tokens]
    pieces = iter(texts.pieces([token for item in rounds for token in item.tokens]))
    tokens: list[dict[str, Any]] = []
    entries = []
    for number, item in enumerate(rounds):
        chances = [] if item.logprobs is None else item.logprobs.exp().tolist()
        path = item.path()
        for index in range(len(item.tokens)):
            is_drafted = index < item.drafted
            tokens.append(
                {
                    "t": next(pieces),
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
                "draft": [texts.word(node) for node in nodes],
                "parents": parents,
                "path": path,
            }
        )
    return {
        "tokens": tokens,
        "rounds": entries,
        "first": entries[0]["e"] if entries else 0.0,
        "seconds": entries[-1]["e"] if entries else 0.0,
    }


def _rounded(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None
