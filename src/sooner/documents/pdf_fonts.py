"""Fonts of a PDF's text: which are bold or monospaced, and TeX's accents."""

from __future__ import annotations

import re
from dataclasses import dataclass

ACCENTS = {
    "`": "\u0300", "\u00b4": "\u0301", "^": "\u0302", "\u02c6": "\u0302", "~": "\u0303",
    "\u02dc": "\u0303", "\u00af": "\u0304", "\u02d8": "\u0306", "\u02d9": "\u0307",
    "\u00a8": "\u0308", "\u02da": "\u030a", "\u02dd": "\u030b", "\u02c7": "\u030c",
    "\u00b8": "\u0327", "\u02db": "\u0328",
}  # fmt: skip
"""Accents that TeX sets as letters of their own, above or below the next or the last letter."""

DOTLESS = {"\u0131": "i", "\u0237": "j"}

TEX_SIGNS = {
    0x0B: "ff", 0x0C: "fi", 0x0D: "fl", 0x0E: "ffi", 0x0F: "ffl",
    0x1B: "ff", 0x1C: "fi", 0x1D: "fl", 0x1E: "ffi", 0x1F: "ffl",
    0x15: "\u2013", 0x16: "\u2014",
}  # fmt: skip
"""What the codes of control characters are in TeX's fonts of old and of Cork encoding, which don't
say so where they are bitmaps."""

MONOSPACED = re.compile(r"cour|mono|typewriter|cmtt|sftt|consol|menlo|monaco|nimbusmon|fixed", re.I)
BOLD = re.compile(r"bold|black|heavy|demi|-medi|cmbx|sfbx|cmssbx|-bd", re.I)
FIXED_PITCH, FORCE_BOLD, HEAVY = 1, 1 << 18, 700
"""Bits of a font descriptor's flags (ISO 32000-1, table 123), and the least weight of
bold: PDFium guesses it from the width of stems, and says 625 for some regular fonts."""


@dataclass(frozen=True)
class Font:
    """The style that a font's name, flags and weight give it (bold, monospaced, ...)."""

    bold: bool = False
    mono: bool = False


def font_of(name: str, flags: int, weight: int) -> Font:
    """Returns a font by what PDFium says of it; names begin with `ABCDEF+` where a subset is
    embedded.
    """
    bold = bool(flags & FORCE_BOLD) or weight >= HEAVY or BOLD.search(name) is not None
    return Font(bold, bool(flags & FIXED_PITCH) or MONOSPACED.search(name) is not None)
