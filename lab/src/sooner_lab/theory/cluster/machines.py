"""The machines of a cluster, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import check_whole
from sooner.errors import SoonerError


@dataclass(frozen=True)
class Cluster:
    """Machines that are all alike.

    Attributes:
        machines: how many.
        accelerators: of each; one parser on each of them. 0: one parser, on a core of the machine.
        cpus: cores of each that read, draft and write pages.
        in_flight: pages under way in one parser.
        ahead: pages that are drafted and wait, for each parser; behind that, drafting waits.
        price: of a machine and hour, in any currency.
        machines_a_job: each so many machines are a job with a driver of its own, which share the
            documents by `--shard`; 0 is one job of all machines.

    Raises:
        SoonerError: fewer than one of something, or a negative price.
    """

    machines: int = 1
    accelerators: int = 1
    cpus: int = 1
    in_flight: int = 1
    ahead: int = 4
    price: float = 0.0
    machines_a_job: int = 0

    def __post_init__(self) -> None:
        for name in ("machines", "cpus", "in_flight", "ahead"):
            check_whole(name, getattr(self, name))
        check_whole("accelerators", self.accelerators, 0)
        check_whole("machines_a_job", self.machines_a_job, 0)
        if self.price < 0:
            raise SoonerError(f"price is {self.price} an hour; it must be 0 or more")

    @property
    def parsers(self) -> int:
        """In the whole cluster."""
        return self.machines * self.on_each

    @property
    def on_each(self) -> int:
        """Parsers of a machine."""
        return self.accelerators or 1

    @property
    def drivers(self) -> int:
        """One for each job."""
        return -(-self.machines // self.machines_a_job) if self.machines_a_job else 1
