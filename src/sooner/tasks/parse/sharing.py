"""Shards of a run's documents."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from ...errors import SoonerError


@dataclass(frozen=True)
class DocumentShard:
    """Holds a part of all documents, by a hash of their places: the same on every machine.

    A document at two places may so be in two shards; it is parsed by whoever comes first.

    Attributes:
        number: which, from 1.
        of: how many there are.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> DocumentShard:
        """Read `2/8`.

        Raises:
            SoonerError: another form, or no such shard.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise SoonerError(f"shard is '{text}'; write it as 1/8 to 8/8")
        return cls(int(match[1]), int(match[2]))

    def has(self, place: str) -> bool:
        digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1
