"""What `sooner bench serve` measures, and the goals, which stood here before any result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sooner.checks import option
from sooner.errors import SoonerError

from ..fields import names, numbers
from ..settings import BenchSettings

PLAIN, SEQUENTIAL = "plain", "one-by-one"
HF_STATIC, HF_CONTINUOUS = "hf-static", "hf-continuous"
DRAFTS = "speculative"
"""The arm of the goals: what a server with a draft model does by default."""
OURS = (DRAFTS, "prompt-lookup", "eagle")
ARMS = (PLAIN, SEQUENTIAL, HF_STATIC, HF_CONTINUOUS, *OURS)
"""All arms; `eagle` needs a head. `plain` is what all others are held against."""
PARTS = ("clients", "text")

AT_FEW, FEW = 1.3, 4
"""`DRAFTS` over `PLAIN` at so few clients or fewer."""
NEVER_SLOWER = 0.97
"""Each of `OURS` over `PLAIN` at every number of clients."""
CONTINUOUS = 3.0
"""`PLAIN` over `SEQUENTIAL` at the most clients."""


@dataclass(frozen=True)
class ServeBenchSettings(BenchSettings):
    """Start a server for each arm, ask all of them the same from another process, compare.

    With --json the file grows part by part. Exits with 1 when an arm's tokens differ from HF's.

    Attributes:
        model: target model; without it, the video miniature and its draft.
        draft: draft model of the same family.
        head: draft head of the arm eagle, which --arms has to list.
        arms: only these arms (plain is always in).
        parts: only clients, text.
        clients: clients of the closed loops, each asking as soon as it is answered.
        max_rows: rows that the servers decode together.
        clips: different requests about clips; all are asked equally often.
        texts: different requests without a clip.
        rounds: rounds of the closed loops.
        static_rows: rows of HF's fixed batches, and requests at once of HF's continuous batching.
        clip_tokens: where an answer about a clip is cut.
        text_tokens: where another answer is cut.

    Raises:
        SoonerError: an arm that lacks what it builds on.
    """

    model: str | None = option(None, metavar="ID_OR_PATH")
    draft: str | None = option(None, metavar="ID_OR_PATH")
    head: str | None = option(None, metavar="DIR")
    arms: tuple[str, ...] = names("arm", ARMS, PLAIN, ARMS[:-1])
    parts: tuple[str, ...] = names("part", PARTS)
    clients: tuple[int, ...] = numbers("--clients", (1, 2, 4, 8, 16, 32))
    max_rows: int = option(32, 1)
    clips: int = option(6, 1)
    texts: int = option(3, 1)
    rounds: int = option(2, 1)
    static_rows: int = option(8, 1)
    clip_tokens: int = option(128, 1)
    text_tokens: int = option(48, 1)
    threads: int = option(1, 1)

    FULL: ClassVar[Mapping[str, Any]] = {"clips": 12, "texts": 6, "rounds": 6}

    def __post_init__(self) -> None:
        super().__post_init__()
        if "eagle" in self.arms and self.head is None:
            raise SoonerError("the eagle arm needs --head, or leave it out of --arms")

    @property
    def served(self) -> tuple[str, ...]:
        """Arms that are servers."""
        return tuple(arm for arm in self.arms if not arm.startswith("hf-"))

    @property
    def batched(self) -> tuple[str, ...]:
        """Servers that decode several requests at once."""
        return tuple(arm for arm in self.served if arm != SEQUENTIAL)

    def times(self, clients: int) -> int:
        """How often a round asks every request at so many clients: two or more a client, so that
        most of the time has as many clients as it says."""
        return max(1, -(-2 * clients // (self.clips + self.texts)))
