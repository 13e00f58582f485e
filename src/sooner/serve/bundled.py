"""Names of the bundled miniatures that chat; what looks at one needs no torch."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from .. import miniatures
from ..checks import check_choice
from ..errors import SoonerError

TYPO = 0.8
"""Likeness of a name to `MINIATURE` from which on it is meant, though misspelt."""
MINIATURE, MINIATURES = "miniature", ("video", "document")
"""`miniature` is the first of these; `miniature:document` names one."""


def miniature_of(name: str) -> str | None:
    """Returns the bundled miniature that `miniature` or `miniature:NAME` means; `None` for other
    models.

    Raises:
        SoonerError: one that does not chat.
    """
    word, colon, which = name.partition(":")
    if word != MINIATURE:
        is_like = "/" not in name and get_close_matches(word, [MINIATURE], cutoff=TYPO)
        if is_like and not Path(name).exists():
            raise SoonerError(f"there is no model '{name}'; did you mean '{MINIATURE}'?")
        return None
    which = which if colon else MINIATURES[0]
    if which in miniatures.names() and which not in MINIATURES:
        raise SoonerError(
            f"the '{which}' miniature does not chat; serve {' or '.join(MINIATURES)} (policies: "
            "sooner act serve)"
        )
    check_choice("miniature", which, MINIATURES)
    return which
