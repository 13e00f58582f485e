"""The gate: what every arm said, token by token, beside HF's own incremental decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from sooner.parity import Parity, compare

from .traces import LoadTraces

Reference = tuple[list[int], list[Tensor]]
"""Tokens, and the scores of each."""
ORDER = ("bug", "tie", "identical")
LISTED = 4
"""Differences that a result tells in full."""


class Gate:
    """What one arm said so far.

    Args:
        references: of each question.
        is_exact: the dtype leaves no room for ties, so a text that differs from one whose tokens
            were compared is a bug.
    """

    def __init__(self, references: Sequence[Reference], is_exact: bool) -> None:
        self.references, self.is_exact = references, is_exact
        self.answers = self.differing = 0
        self._entries: list[tuple[int, Parity]] = []
        self._texts: dict[int, set[str]] = {}

    def tokens(self, number: int, tokens: Sequence[int], text: str | None = None) -> None:
        """Compare an answer's tokens with the reference; its text is that of these tokens."""
        expected, scores = self.references[number]
        self._entries.append((number, compare(expected, tokens, scores)))
        if text is not None:
            self._texts.setdefault(number, set()).add(text)

    def load(self, load: LoadTraces) -> None:
        """Compare the answers of a load: by their tokens where it has them, else by their texts,
        with those whose tokens were compared."""
        for trace in load.traces:
            if trace.ids:
                self.tokens(trace.number, trace.ids, trace.text)
                continue
            self.answers += 1
            self.differing += trace.text not in self._texts.get(trace.number, ())

    @property
    def verdict(self) -> str | None:
        """The worst so far; `None` before anything was compared."""
        verdicts = {parity.verdict for _, parity in self._entries}
        if self.is_exact and self.differing:
            verdicts.add("bug")
        return next((verdict for verdict in ORDER if verdict in verdicts), None)

    @property
    def is_red(self) -> bool:
        """Whether the arm may show no figure."""
        return self.verdict in ("bug", None)

    def report(self) -> dict[str, Any]:
        """For the result."""
        differ = [
            (number, entry) for number, entry in self._entries if entry.divergence is not None
        ]
        return {
            "parity": self.verdict,
            "compared": len(self._entries),
            "identical": len(self._entries) - len(differ),
            "answers": self.answers,
            "differing": self.differing,
            "divergences": [
                {"question": number, **parity.as_dict()} for number, parity in differ[:LISTED]
            ],
        }
