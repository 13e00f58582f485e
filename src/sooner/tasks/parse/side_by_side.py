"""What pages that are parsed side by side belong to, each left once its last page has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Tag = TypeVar("Tag")


class OpenTags(Generic[Tag]):
    """Such as documents, of which pages are under way.

    Pages of a tag are begun one behind the other, so that it has no more of them once another
    tag's are begun; they end in any order.

    Args:
        leave: told of a tag whose pages have all ended, and of those that are open besides.
    """

    def __init__(self, leave: Callable[[Tag, list[Tag]], None]) -> None:
        self.leave = leave
        self._open: list[Tag] = []  # in the order of their pages
        self._under_way: dict[int, int] = {}  # pages, by `id` of a tag

    def begin(self, tag: Tag) -> None:
        """A page is begun."""
        before = self._open[-1] if self._open else None
        self._under_way[id(tag)] = self._under_way.get(id(tag), 0) + 1
        if before is not tag:
            self._open.append(tag)
            if before is not None:
                self._settle(before)

    def end(self, tag: Tag) -> None:
        """A page has ended."""
        self._under_way[id(tag)] -= 1
        if tag is not self._open[-1]:
            self._settle(tag)

    def close(self) -> None:
        """No more pages are begun, and all have ended."""
        if self._open:
            self._settle(self._open[-1])

    def _settle(self, tag: Tag) -> None:
        if not self._under_way[id(tag)]:
            del self._under_way[id(tag)]
            self._open = [other for other in self._open if other is not tag]
            self.leave(tag, list(self._open))
