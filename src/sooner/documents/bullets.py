"""Bullets in front of lines, which OCR is blind to: a dot alone is no text to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .boxes import overlap
from .lines import Line, is_item
from .page import Picture

REACH = 2.2
"""Heights of a line to the left of it in which a bullet is looked for."""

APART = 0.4
"""Heights that are free to the left of a bullet, which a last letter of another column's is not."""

SMALLEST, LARGEST = 0.12, 0.6
"""Width and height of a bullet in heights of its line."""

MIDDLE = (0.3, 0.7)
"""Where the middle of a bullet is, in heights of its line from the top: a full stop is lower."""

SOLID = 0.6
"""Share of a bullet's box that is ink at least."""

CONTRAST = 64
"""Difference in brightness to the paper from which a pixel is ink."""


def with_bullets(lines: Sequence[Line], picture: Picture) -> list[Line]:
    """Lines, with `•` in front of those that have a dot to their left and nothing else."""
    found = []
    for line in lines:
        marked = _marked(line, picture)
        dot = (marked.bbox[0], line.bbox[1], line.bbox[0], line.bbox[3])
        is_taken = any(overlap(dot, other.bbox) > 0 for other in lines if other is not line)
        # The last letter of another line may be as round as a bullet.
        found.append(line if is_taken else marked)
    return found


def _marked(line: Line, picture: Picture) -> Line:
    if is_item(line.text):
        return line
    x0, y0, x1, y1 = line.bbox
    left = max(round(x0 - (REACH + APART) * line.size), 0)
    window = picture[max(round(y0), 0) : round(y1), left : round(x0)]
    start = _dot(window, y1 - y0)
    if start is None:
        return line
    return replace(line, text=f"• {line.text}", bbox=(float(left + start), y0, x1, y1))


def _dot(window: Picture, height: float) -> int | None:
    """Where a dot begins that is the last thing in a window, in pixels from its left."""
    if min(window.shape[:2]) < 2:
        return None
    grey = window.mean(axis=2)  # [rows, columns]
    ink = np.abs(grey - np.median(grey)) > CONTRAST
    columns = np.flatnonzero(ink.any(0))
    if not len(columns):
        return None
    gaps = np.flatnonzero(np.diff(columns) > 1)
    first = columns[gaps[-1] + 1] if len(gaps) else columns[0]
    before = columns[gaps[-1]] if len(gaps) else -1 - APART * height
    dot = ink[:, first : columns[-1] + 1]
    return int(first) if first - before > APART * height and _is_round(dot, height) else None


def _is_round(ink: np.ndarray, height: float) -> bool:
    """Whether ink, `[rows, columns]`, is a dot beside the middle of a line."""
    rows = np.flatnonzero(ink.any(1))
    wide, high = ink.shape[1], rows[-1] - rows[0] + 1
    fits = all(SMALLEST * height <= side <= LARGEST * height for side in (wide, high))
    middle = (rows[0] + rows[-1]) / 2 / height
    even = max(wide, high) <= 1.5 * min(wide, high)
    solid = ink[rows[0] : rows[-1] + 1].mean() >= SOLID
    return bool(fits and even and solid and MIDDLE[0] <= middle <= MIDDLE[1])
