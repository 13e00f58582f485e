"""Plain decoding of a page beside its parsing: is the text the same, and how much faster it was."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ...documents import Page, PageDraft
from ...engine.stats.run import EXACT
from .result import ParsedPage

if TYPE_CHECKING:
    from .parser import PageParser

WARM_UP = 4
"""New tokens of the run before the clock counts: first forwards pay for allocations."""

OUTSIDE = ("e2e", "drafter", "wait", "regions")
"""Times that contain others, or that were spent beside something else."""


class ComparedParser:
    """Parses pages one at a time, and each plainly as well; see `compare_plain`.

    Args:
        parser: of the pages; the first one warms it up.
    """

    def __init__(self, parser: PageParser) -> None:
        self.parser, self._is_warm = parser, False

    def __call__(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        if not self._is_warm:
            warm_up(self.parser, page)
            self._is_warm = True
        parsed = self.parser(page, draft)
        return replace(parsed, compared=compare_plain(self.parser, page, parsed))


def warm_up(parser: PageParser, page: Page) -> None:
    """Decode a few tokens of a page, untimed."""
    few = replace(parser.settings, max_new_tokens=WARM_UP)
    type(parser)(parser.pair, few)(page)


def compare_plain(parser: PageParser, page: Page, parsed: ParsedPage) -> dict[str, Any]:
    """Decode a page plainly with the same engine, and compare both.

    Args:
        parsed: what became of it.

    Returns:
        `parity` (`identical`, or from which letter on the texts differ), `decode_speedup` and
        `e2e_speedup` (eq. 13 and 14 of the paper on this page; its drafter counts in full, as if
        nothing had run beside it), `plain_seconds`. Speed-ups are `None` for texts that did not
        come to an end, and for those that should be equal and are not.
    """
    plain = parser(page)
    is_same = plain.raw == parsed.raw
    pairs = enumerate(zip_longest(plain.raw, parsed.raw))
    same = next((place for place, (letter, other) in pairs if letter != other), 0)
    ended = plain.counts_for_speed and parsed.counts_for_speed
    decoding, drafted = (page.seconds.get("decode", 0.0) for page in (plain, parsed))
    is_claimed = ended and drafted and (is_same or parsed.mode != EXACT)
    total = _alone(parsed) + parsed.seconds.get("drafter", 0.0)
    return {
        "parity": "identical" if is_same else f"differs from letter {same} on",
        "decode_speedup": decoding / drafted if is_claimed else None,
        "e2e_speedup": _alone(plain) / total if is_claimed else None,
        "plain_seconds": round(_alone(plain), 4),
    }


def _alone(parsed: ParsedPage) -> float:
    """Returns seconds of everything that the target did."""
    return sum(took for name, took in parsed.seconds.items() if name not in OUTSIDE)
