"""Clips and pictures of a soak, the same pixels under many contents, and broken ones."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from .requests import CLIPS, PICTURES, data_uri

VARIANTS = 24
"""Contents of each file that show the same: so few that caches have all of them before half of a
soak is over, as what they keep is not what is looked for."""
LARGE = 4000
"""Pixels of a side of a picture that takes a while to decode: 48 MB as RGB."""


def contents(sample: Path, seed: int) -> dict[str, bytes]:
    """The files that requests show, by name.

    Args:
        sample: the miniature's own clip, which is the first.
        seed: of the others.
    """
    from ..clips import rendered

    with tempfile.TemporaryDirectory() as folder:
        more = [path.read_bytes() for path in rendered(Path(folder), CLIPS - 1, seed, 4).files]
    clips = [sample.read_bytes(), *more]
    made = {f"clip-{number}": content for number, content in enumerate(clips)}
    for number in range(PICTURES):
        made[f"picture-{number}"] = png(96 + 16 * number, seed + number)
    return made


def png(side: int, seed: int, noise: bool = True) -> bytes:
    """A square picture; without noise of one colour, and a small file whatever its size."""
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(seed)
    if noise:
        picture = Image.fromarray(draw.integers(0, 256, (side, side, 3), dtype=np.uint8))
    else:
        picture = Image.new("RGB", (side, side), tuple(draw.integers(0, 256, 3).tolist()))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def truncated() -> bytes:
    """A large picture that is decoded almost to its end before it is found to be damaged."""
    whole = png(LARGE, 0, noise=False)
    return whole[: len(whole) * 9 // 10]


def url_of(name: str, content: bytes, variant: int = 0) -> str:
    """A data URI.

    Args:
        variant: above 0 the content has bytes behind it that decoders skip, so that it is another.
    """
    if variant:
        content += _skipped(name, variant.to_bytes(4, "big"))
    return data_uri("video/mp4" if name.startswith("clip") else "image/png", content)


def _skipped(name: str, salt: bytes) -> bytes:
    """Returns a free box of MP4; what follows the end of a PNG is not read."""
    if name.startswith("clip"):
        return (8 + len(salt)).to_bytes(4, "big") + b"free" + salt
    return salt
