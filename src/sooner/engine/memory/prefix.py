"""Names of the pages of a text: equal if token ids, media and positions are, and so are slots."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from .pages import PageName

NO_PAGE = b""
"""What the first page's key stands on."""


@dataclass(frozen=True)
class Medium:
    """A picture or clip that a prompt contains.

    Attributes:
        key: hash of its content and of how it was cut into patches.
        tokens: its placeholders in the prompt, ascending.
    """

    key: bytes
    tokens: Sequence[int]


@dataclass
class Prefix:
    """What stands in the slots of a row, as far as its prompt goes.

    Attributes:
        ids: token ids.
        media: pictures and clips among them, in their order.
        positions: RoPE positions, `[axes, tokens]` or `[tokens]`, an array of numpy; `None` before
            they are known.
        next_position: of the token behind, on each axis.
    """

    ids: list[int]
    media: list[Medium] = field(default_factory=list)
    positions: Any = None
    next_position: tuple[int, ...] = ()

    def keys(self, slots: int, generated: Sequence[int] = ()) -> list[bytes]:
        """Returns keys of the full pages of the text with `generated` behind it."""
        ids = array("q", [*self.ids, *generated])
        media = _by_page(self.media, slots)
        keys, before = [], NO_PAGE
        for page in range(len(ids) // slots):
            digest = blake2b(before, digest_size=16)
            digest.update(ids[page * slots : (page + 1) * slots].tobytes())
            for offset, key in media.get(page, ()):
                digest.update(b"%d:" % offset + key)
            before = digest.digest()
            keys.append(before)
        return keys

    def names(self, slots: int, generated: Sequence[int] = ()) -> list[PageName]:
        """Returns keys of positions, those of `generated` after the prompt's."""
        import numpy as np

        places = np.atleast_2d(np.asarray(self.positions, dtype=np.int64))  # [axes, tokens]
        following = np.array(self.next_position)[:, None] + np.arange(len(generated))
        places = np.concatenate([places, following], 1)
        return [
            PageName(key, blake2b(part.tobytes(), digest_size=16).digest())
            for page, key in enumerate(self.keys(slots, generated))
            for part in [np.ascontiguousarray(places[:, page * slots : (page + 1) * slots])]
        ]


def _by_page(media: list[Medium], slots: int) -> dict[int, list[tuple[int, bytes]]]:
    """Returns, for each page, which media begin in it, or in the pages before (negative), and
    where.
    """
    pages: dict[int, list[tuple[int, bytes]]] = {}
    for medium in media:
        for page in sorted({token // slots for token in medium.tokens}):
            first = medium.tokens[0] - page * slots
            pages.setdefault(page, []).append((first, medium.key))
    return pages
