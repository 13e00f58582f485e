"""A command that `torchrun` started several times over, and that says and writes things once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Company:
    """The processes of one command; a process alone is company enough.

    Args:
        is_many: it was asked for (`--tp`).
    """

    def __init__(self, is_many: bool) -> None:
        self.is_many = is_many
        self._ranks: Any = None

    @property
    def speaks(self) -> bool:
        """Whether it is this process that prints and writes."""
        from ..tasks.sharding import is_leading

        return not self.is_many or is_leading()

    @contextmanager
    def joined(self, device: str) -> Iterator[None]:
        """With the others, to the end; all but the first write no word to stdout.

        After an error the others may wait in a forward for ever: nobody takes leave then, and
        `torchrun` ends them when this process has ended.

        Raises:
            SoonerError: there are no others; see `sooner.tasks.sharding.join`.
        """
        if not self.is_many:
            yield
            return
        from ..tasks.sharding import join, leave

        self._ranks = join(device)
        if self.speaks:
            yield
        else:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                yield
        leave()

    def agree(self, decide: Callable[[], bool]) -> bool:
        """What the process that speaks decides; no other is asked."""
        if self._ranks is None:
            return decide()
        return bool(self._ranks.agree(int(self.speaks and decide())))
