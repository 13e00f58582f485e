"""Where pieces of film and the needle go: numbers only, no pixels and no words."""

from __future__ import annotations

import math

from sooner.errors import SoonerError


def cut(frames: int, piece: int, group: int, is_mixed: bool) -> tuple[int, int]:
    """Frames that are shown, and into how many pieces they are cut.

    Pieces are equal, since some families take no others, and whole groups of frames. Their number
    is near `frames / piece`, and such that as few frames as possible are left out.

    Args:
        frames: as asked for.
        piece: frames of a piece, about.
        group: frames that the family looks at together.
        is_mixed: documents stand between pieces, so that there are two or more.

    Raises:
        SoonerError: too few frames for that.
    """
    minimum = 2 if is_mixed else 1
    if frames < minimum * group:
        raise SoonerError(
            f"{frames} frames are too few for this haystack; {minimum * group} is the least"
        )
    if not is_mixed:
        return frames - frames % group, 1
    ideal = max(minimum, round(frames / piece))
    maximum = min(2 * ideal, frames // group)
    choices = range(max(minimum, math.ceil(ideal / 2)), max(minimum, maximum) + 1)
    pieces = min(choices, key=lambda count: (frames % (count * group), abs(count - ideal)))
    return frames - frames % (pieces * group), pieces


def needle_place(frames: int, pieces: int, needle: int, depth: float, group: int) -> int:
    """First frame of a needle of `needle` frames at `depth` of the other frames.

    It begins with a group and lies in one piece: at a border it moves to the nearer side.

    Raises:
        SoonerError: a needle longer than a piece.
    """
    piece = frames // pieces
    if needle > piece:
        raise SoonerError(
            f"the needle has {needle} frames, but the film is cut into pieces of {piece}; use a "
            "shorter needle or longer pieces"
        )
    at = round(depth * (frames - needle) / group) * group
    inside = at % piece
    if inside + needle > piece:
        over = inside + needle - piece
        at += piece - inside if over > needle / 2 else -over
    return at
