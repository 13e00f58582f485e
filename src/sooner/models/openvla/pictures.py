"""Pictures as OpenVLA's towers see them: one square, in the normalisation of each tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ...errors import SoonerError, UnsupportedError, unknown

MAX_PIXELS = 100_000_000
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class PictureForm:
    """Says which size and normalisation pictures have.

    A picture is stretched to the square by PIL's bicubic filter, which is "resize-naive" in
    OpenVLA's code, divided by 255 and normalised. The defaults are timm's for the two towers; a
    published `preprocessor_config.json` may say otherwise (OpenVLA's was rounded to bfloat16).

    Args:
        side: of the square, in pixels.
        means, stds: by channel, of DINOv2 and of SigLIP.

    Raises:
        SoonerError: a side below 1, or a triple that is none.
    """

    side: int = 224
    means: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.5, 0.5, 0.5))
    stds: tuple[Triple, Triple] = ((0.229, 0.224, 0.225), (0.5, 0.5, 0.5))

    def __post_init__(self) -> None:
        if isinstance(self.side, bool) or not isinstance(self.side, int) or self.side < 1:
            raise SoonerError(f"side {self.side!r} is no number of pixels; give one above 0")
        for name in ("means", "stds"):
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        if min(value for triple in self.stds for value in triple) <= 0:
            raise SoonerError(f"stds {list(self.stds)} are not all above 0; check the processor")

    @classmethod
    def published(cls, config: Mapping[str, Any], side: int) -> PictureForm:
        """Reads the form from a published `preprocessor_config.json`.

        Raises:
            UnsupportedError: another resizing than "resize-naive", or bicubic.
        """
        strategy = config.get("image_resize_strategy", "resize-naive")
        if strategy != "resize-naive":
            raise UnsupportedError(
                f"image_resize_strategy '{strategy}' is not built in; only 'resize-naive' is"
            )
        for name in config.get("interpolations") or ():
            if name != "bicubic":
                raise UnsupportedError(f"interpolation '{name}' is not built in; only 'bicubic' is")
        fields = {name: config[name] for name in ("means", "stds") if config.get(name)}
        return cls(side, **fields)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> PictureForm:
        """Reads the form from what `plain` gave.

        Raises:
            SoonerError: an unknown key.
        """
        known = tuple(cls.__dataclass_fields__)
        for key in data:
            if key not in known:
                raise unknown("key of a picture form", key, known)
        return cls(**data)

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def __call__(self, picture: Any) -> Tensor:
        """A picture to `[6, side, side]`, float32: DINOv2's channels, then SigLIP's.

        Args:
            picture: PIL, or `[height, width, 3]` uint8.

        Raises:
            SoonerError: as `as_image`.
        """
        square = np.array(self.fitted(picture))  # [side, side, 3]
        pixels = torch.from_numpy(square).permute(2, 0, 1).float() / 255  # [3, side, side]
        views = [
            (pixels - _column(mean)) / _column(std)
            for mean, std in zip(self.means, self.stds, strict=True)
        ]
        return torch.cat(views)

    def fitted(self, picture: Any) -> Image.Image:
        """Returns a picture as the square that the towers see, RGB; one that is that square stays
        as it is.

        Raises:
            SoonerError: as `as_image`.
        """
        image = as_image(picture).convert("RGB")
        return image.resize((self.side, self.side), Image.Resampling.BICUBIC)


def as_image(picture: Any) -> Image.Image:
    """A picture as PIL has it, checked.

    Raises:
        SoonerError: not PIL and not `[height, width, 3]` uint8, empty, or of more than 100
            megapixels.
    """
    if isinstance(picture, Image.Image):
        _check_size(picture.width, picture.height)
        return picture
    if isinstance(picture, Tensor):
        picture = picture.detach().cpu().numpy()
    if not isinstance(picture, np.ndarray):
        raise SoonerError(
            f"a picture is a {type(picture).__name__}; give PIL or a uint8 array [height, width, 3]"
        )
    if picture.dtype != np.uint8:
        raise SoonerError(
            f"a picture is an array of {picture.dtype}; give uint8 from 0 to 255, so that its "
            "range is beyond doubt"
        )
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise SoonerError(
            f"a picture has shape {list(picture.shape)}; give [height, width, 3], RGB"
        )
    _check_size(picture.shape[1], picture.shape[0])
    return Image.fromarray(np.ascontiguousarray(picture))


def _check_size(width: int, height: int) -> None:
    if width * height == 0:
        raise SoonerError(f"a picture of {width} x {height} pixels is empty; give one with pixels")
    if width * height > MAX_PIXELS:
        raise SoonerError(
            f"a picture of {width} x {height} has {width * height / 1e6:.0f} megapixels; at most "
            f"{MAX_PIXELS // 1_000_000} are read, so scale it down"
        )


def _column(values: Sequence[float]) -> Tensor:
    return torch.tensor(values).view(3, 1, 1)


def _pair(name: str, values: Any) -> tuple[Triple, Triple]:
    try:
        first, second = (tuple(float(value) for value in triple) for triple in values)
    except (TypeError, ValueError):
        first = second = ()
    if len(first) != 3 or len(second) != 3:
        raise SoonerError(f"{name} {values!r} are not three numbers for each of two towers")
    return first, second
