"""Method names of the command line, and how each is built for a canvas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import SoonerError
from ...methods import GSD, Autoregressive, CoupledJacobi, Method
from ...models import Canvas
from .settings import ImagineSettings

PICTURE, CLIP = 64, 128
"""Places drafted ahead where nothing is asked for: the windows that served the paper best."""

Options = dict[str, Any]


def build_method(settings: ImagineSettings, canvas: Canvas) -> Method:
    """The method that `settings` name.

    Raises:
        SoonerError: a window beyond what is left of the picture, or options the method refuses.
    """
    grid = canvas.grid
    if settings.window is not None and settings.window > grid.left:
        raise SoonerError(
            f"window is {settings.window}; only {grid.left} codes are left to draw, so use at most "
            f"{grid.left}"
        )
    window = settings.window or default_window(canvas, settings.count)
    options: Options = {"window": min(window, grid.left)}
    if settings.init is not None:
        options["init"] = settings.init
    return BUILDERS[settings.method](settings, options)


def default_window(canvas: Canvas, count: int) -> int:
    """Places to draft ahead.

    A GPU looks at a whole window in the time of one place. A processor does not, so there it is a
    quarter for pictures, whose rows come in pairs under guidance (of 8 to 128 places, 16 were the
    fastest by the clock, see docs/results/imagine.md), and shared by the rows of a batch.
    """
    is_clip = canvas.grid.frames > 1
    window = CLIP if is_clip else PICTURE
    if canvas.device.type != "cpu":
        return window
    return max(8, (window if is_clip else window // 4) // count)


def _jacobi(settings: ImagineSettings, options: Options) -> Method:
    asked = {"coupling": settings.coupling, "strength": settings.strength}
    known: Options = {name: value for name, value in asked.items() if value is not None}
    return CoupledJacobi(**options, **known)


def _sjd(settings: ImagineSettings, options: Options) -> Method:
    return CoupledJacobi(**options, coupling="independent")


def _gsd(settings: ImagineSettings, options: Options) -> Method:
    return GSD(**options)


def _plain(settings: ImagineSettings, options: Options) -> Method:
    return Autoregressive()


BUILDERS: dict[str, Callable[[ImagineSettings, Options], Method]] = {
    "gsd": _gsd,
    "jacobi": _jacobi,
    "plain": _plain,
    "sjd": _sjd,
}
