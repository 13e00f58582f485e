"""A simulator's picture as OpenVLA's published evaluation hands it to the policy.

The published code runs TensorFlow; the same arithmetic is here without it. What differs is the
last bit: TensorFlow's Lanczos filter sums in another order.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

SIDE = 224
QUALITY = 95
"""The quality of `tf.image.encode_jpeg`, which halves the colours' resolution (4:2:0), too."""
CROP = 0.9
"""Share of the picture's area that is kept."""


def as_trained(picture: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Through JPEG and Lanczos, as the training data went (`resize_image` in `libero_utils.py`).

    Args:
        picture: `[height, width, 3]` uint8, upright.

    Returns:
        `[side, side, 3]` uint8.
    """
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=QUALITY, subsampling="4:2:0")
    decoded = np.asarray(Image.open(file, formats=["JPEG"]))
    # Channel by channel in float32: PIL rounds uint8 pictures between its two passes.
    channels = [Image.fromarray(decoded[..., channel].astype(np.float32)) for channel in range(3)]
    scaled = [
        np.asarray(channel.resize((side, side), Image.Resampling.LANCZOS, reducing_gap=None))
        for channel in channels
    ]
    return np.clip(np.rint(np.stack(scaled, -1)), 0, 255).astype(np.uint8)


def middle(picture: np.ndarray) -> np.ndarray:
    """The middle with `CROP` of the area, scaled up to the picture's own size.

    Bilinear between corners, as `tf.image.crop_and_resize` (`crop_and_resize` in
    `openvla_utils.py`); bytes are `floor(255.5 x)` of fractions `x`, as TensorFlow makes them.

    Args:
        picture: `[side, side, 3]` uint8.
    """
    side = picture.shape[0]
    fraction = CROP**0.5
    places = (side - 1) * np.linspace((1 - fraction) / 2, (1 + fraction) / 2, side)  # [side]
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, side - 1)
    share = (places - low)[:, None, None]
    fractions = picture.astype(np.float64) / 255
    rows = fractions[low] * (1 - share) + fractions[high] * share  # [side, side, 3]
    share = share.swapaxes(0, 1)
    both = rows[:, low] * (1 - share) + rows[:, high] * share
    return np.floor(np.clip(both, 0, 1) * 255.5).astype(np.uint8)
