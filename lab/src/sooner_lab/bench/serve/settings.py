"""What `sooner bench serve` measures, and the goals, which stood here before any result."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.errors import SoonerError

PLAIN, SEQUENTIAL = "plain", "one-by-one"
HF_STATIC, HF_CONTINUOUS = "hf-static", "hf-continuous"
DRAFTS = "speculative"
"""The arm of the goals: what a server with a draft model does by default."""
OURS = (DRAFTS, "prompt-lookup", "eagle")
ARMS = (PLAIN, SEQUENTIAL, HF_STATIC, HF_CONTINUOUS, *OURS)
"""All arms; `eagle` needs a head. `plain` is what all others are held against."""
PARTS = ("clients", "poisson", "second", "text")

AT_FEW, FEW = 1.3, 4
"""`DRAFTS` over `PLAIN` at so few clients or fewer."""
NEVER_SLOWER = 0.97
"""Each of `OURS` over `PLAIN` at every number of clients."""
CONTINUOUS = 3.0
"""`PLAIN` over `SEQUENTIAL` at the most clients."""
LOAD, TAIL = 0.7, 2.0
"""p99 of the time per token at this share of an arm's saturation, over that at one client."""
PACE = 1.9
"""Times the p99 of one client: `--time-per-token-ms` of the servers that are told to hold it."""
SECOND = 0.15
"""Time to the first token of a second question on a clip, over that of the first, at most."""
COST = 0.03
"""What a server may add to the time of `sooner.generate`, one request at a time."""


@dataclass(frozen=True)
class ServeBenchSettings:
    """What is measured.

    Attributes:
        model, draft, head: checkpoint folders or hub ids; `None` is the video miniature and its
            draft.
        arms: among `ARMS`.
        parts: among `PARTS`.
        clients: of the closed loops, each asking as soon as it is answered.
        max_rows: of every server but `SEQUENTIAL`; as many as the most clients, so that each has a
            row.
        clips, texts: different requests of each kind; all are asked equally often.
        rounds: of the closed loops.
        arrivals: requests of the open loop.
        second: clips that are asked about twice, and how often each.
        static_rows: rows of HF's fixed batches, and requests at once of HF's continuous batching.
        clip_tokens, text_tokens: `max_tokens` of a request.
        device, dtype, threads, seed: as everywhere; of servers and of what runs in this process.

    Raises:
        SoonerError: parts or arms that lack what they build on.
    """

    model: str | None = None
    draft: str | None = None
    head: str | None = None
    arms: tuple[str, ...] = ARMS[:-1]
    parts: tuple[str, ...] = PARTS
    clients: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    max_rows: int = 32
    clips: int = 6
    texts: int = 3
    rounds: int = 2
    arrivals: int = 60
    second: tuple[int, int] = (6, 2)
    static_rows: int = 8
    clip_tokens: int = 128
    text_tokens: int = 48
    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1
    seed: int = 20_261_121

    def __post_init__(self) -> None:
        if "eagle" in self.arms and self.head is None:
            raise SoonerError("the eagle arm needs --head, or leave it out of --arms")
        if "poisson" in self.parts and "clients" not in self.parts:
            raise SoonerError(
                "the poisson part takes its rate from the clients part; add clients to --parts"
            )

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
