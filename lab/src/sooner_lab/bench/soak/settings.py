"""What `sooner bench soak` does to a server, and the laws that it is held to; fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import check_fields, option

MAX_SLOPE = 1.0
"""MiB a minute that the server may grow once it is warm: the upper end of the interval."""
WINDOWS = 30
"""Equal parts of the load behind its beginning, whose medians the slope is fitted to."""
WARM = 6
"""The first sixth of a load is left out: caches fill, buffers reach their size."""
SPARE = 4
"""Descriptors and threads that an idle server may have more than at the beginning."""
SETTLE_SECONDS = 30.0
"""What an idle server is given to close connections: a connection kept alive takes 5."""
TIMEOUT = 240.0
"""Seconds after which an answer counts as lost."""
DOCUMENTED = frozenset({200, 400, 401, 403, 404, 405, 408, 413, 429, 503, 504})
"""Statuses of docs/serve.md."""
MIX: dict[str, float] = {
    "ask": 60.0, "slow-reader": 4.0, "deadline": 4.0, "hang-up": 8.0, "malformed": 8.0,
    "broken-media": 4.0, "too-large": 1.0, "burst": 0.6,
}  # fmt: skip
"""How often clients do what, in parts; see `clients.ACTS`."""


@dataclass(frozen=True)
class SoakSettings:
    """Ask `sooner serve miniature` for everything, rightly and wrongly, for half an hour.

    Exits with 1 when a law is broken: an answer lost or another than alone, a status that is
    not documented, memory, descriptors or processes that stay, an end that is not clean.

    Attributes:
        minutes: Minutes of load; settling comes on top.
        model: What is served.
        clients: Clients, a thread each.
        max_queue: Requests that wait, few enough for bursts to be refused.
        kv_memory: Of the server's keys and values: full of prefixes before the load, and too little
            for eight rows of clips, so that rows have to be evicted.
        sample_seconds: Seconds between two looks at the server's memory.
        seed: Of what clients do.
    """

    minutes: float = option(30.0, 0.1)
    model: str = "miniature"
    clients: int = option(8, 1)
    max_queue: int = option(16, 1)
    kv_memory: str = "64MiB"
    sample_seconds: float = option(2.0, 0, above=True)
    seed: int = 20_261_123

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def burst(self) -> int:
        """Requests of a burst: more than the server holds, which has 8 rows by default."""
        return 8 + self.max_queue + 12
