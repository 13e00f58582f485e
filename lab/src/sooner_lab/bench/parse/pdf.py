"""PDFs of the world's pages: scans, and scans with an invisible text layer, as OCR services write.

Written by hand, for the picture on the page must come out of PDFium as it went in, pixel by pixel.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from ...worlds.document import glyphs
from ...worlds.document.page import CELL, DrawnWord
from .sheets import Sheet

DPI = 144
"""Two pixels a point, so that no page has a fraction of a pixel."""
POINT = DPI // 72
INVISIBLE = 3
ADVANCE = 0.6
"""Width of every letter of Courier, in its own size."""
BULLET = 0x95
"""A list's dot in Windows' Latin."""


def write_pdf(path: Path, sheets: Sequence[Sheet], text_layer: bool) -> Path:
    """A PDF of one picture a page.

    Args:
        text_layer: lay each word over its picture, invisible.
    """
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", _font()]
    kids = []
    for sheet in sheets:
        kids.append(len(objects) + 1)
        objects += _page(sheet, text_layer, len(objects) + 1)
    listed = " ".join(f"{number} 0 R" for number in kids)
    objects[1] = f"<< /Type /Pages /Kids [{listed}] /Count {len(kids)} >>".encode()
    path.write_bytes(_file(objects))
    return path


def _font() -> bytes:
    return b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>"


def _page(sheet: Sheet, text_layer: bool, number: int) -> list[bytes]:
    """A page, its picture and its content: three objects from `number` on."""
    width, height = sheet.page.size
    across, down = width / POINT, height / POINT
    page = (
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {across:g} {down:g}] "
        f"/Resources << /XObject << /Scan {number + 1} 0 R >> /Font << /Text 3 0 R >> >> "
        f"/Contents {number + 2} 0 R >>"
    )
    picture = (
        f"/Type /XObject /Subtype /Image /Width {width} /Height {height} "
        "/ColorSpace /DeviceGray /BitsPerComponent 8"
    )
    content = f"q {across:g} 0 0 {down:g} 0 0 cm /Scan Do Q\n".encode()
    if text_layer:
        content += b"\n".join(_words(sheet.made.words, height))
    grey = sheet.page.picture[:, :, 0].tobytes()
    return [page.encode(), _stream(grey, picture), _stream(content)]


def _words(words: Sequence[DrawnWord], height: int) -> list[bytes]:
    """Each word in letters as wide as those on the picture together."""
    lines = []
    for word in words:
        ink = bytes([BULLET]) if word.bullet else word.ink.encode("ascii")
        size = glyphs.SIZES[word.style] / POINT
        wide = (word.right - word.left) / POINT
        squeeze = 100 * wide / (ADVANCE * size * len(ink))
        x, y = word.left / POINT, (height - word.row * CELL - glyphs.BASELINE) / POINT
        place = f"BT /Text {size:g} Tf {INVISIBLE} Tr {squeeze:.2f} Tz {x:g} {y:g} Td <"
        lines.append(place.encode() + ink.hex().encode() + b"> Tj ET")
    return lines


def _stream(data: bytes, entries: str = "") -> bytes:
    packed = zlib.compress(data)
    head = f"<< {entries} /Filter /FlateDecode /Length {len(packed)} >>\nstream\n"
    return head.encode() + packed + b"\nendstream"


def _file(objects: Sequence[bytes]) -> bytes:
    """Objects numbered from 1, and the table of where they begin."""
    data, starts = b"%PDF-1.4\n", []
    for number, obj in enumerate(objects, 1):
        starts.append(len(data))
        data += f"{number} 0 obj\n".encode() + obj + b"\nendobj\n"
    table = "".join(f"{start:010} 00000 n \n" for start in starts)
    end = f"xref\n0 {len(starts) + 1}\n0000000000 65535 f \n{table}"
    end += f"trailer\n<< /Size {len(starts) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + end.encode()
