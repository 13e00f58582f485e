"""How far a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Pages of a run.

    Attributes:
        total: to be done in this run.
        done, partial, failed: of these, so far; partial ones are done, too.
        before: done in earlier runs.
        seconds: that these took, the loading of the model left out.
    """

    total: int = 0
    done: int = 0
    partial: int = 0
    failed: int = 0
    before: int = 0
    seconds: float = 0.0

    @property
    def pages_per_second(self) -> float:
        return (self.done + self.failed) / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate; `None` before the first page."""
        speed = self.pages_per_second
        return (self.total - self.done - self.failed) / speed if speed else None
