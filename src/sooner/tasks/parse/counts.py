"""How far a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Pages of a run.

    Attributes:
        total: to be done in this run, of the documents opened so far.
        documents, opened: of the run, and how many it has opened: each when its turn comes.
        done, partial, failed: of these, so far; partial ones are done, too.
        before: done in earlier runs.
        seconds: that these took, the loading of the model left out.
    """

    total: int = 0
    documents: int = 0
    opened: int = 0
    done: int = 0
    partial: int = 0
    failed: int = 0
    before: int = 0
    seconds: float = 0.0

    @property
    def pages_per_second(self) -> float:
        return (self.done + self.failed) / self.seconds if self.seconds else 0.0

    @property
    def is_total_known(self) -> bool:
        """Whether all documents are opened."""
        return self.opened >= self.documents

    @property
    def expected(self) -> float:
        """Pages in all, should the other documents be as long as those opened so far."""
        return self.total * max(self.documents / max(self.opened, 1), 1.0)

    @property
    def seconds_left(self) -> float | None:
        """An estimate; `None` before the first page."""
        speed = self.pages_per_second
        return max(self.expected - self.done - self.failed, 0.0) / speed if speed else None
