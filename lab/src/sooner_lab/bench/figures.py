"""What every bench's figures have in common."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

# Okabe and Ito's colours, which stay apart for the colour-blind; markers differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPx"


def check_matplotlib() -> None:
    """Refuse to go on without it, before minutes are spent.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise SoonerError(
            "figures need matplotlib, which is not installed; pip install 'sooner-lab[bench]'"
        )


def save(figure: Any, stem: Path) -> list[str]:
    """Write `stem`.png, the one format that pages show; returns its name in a list.

    Its colours are a palette of 256, since figures are in the repository: a third of the bytes.
    """
    from PIL import Image

    path = stem.with_name(f"{stem.name}.png")
    figure.savefig(path, dpi=150, metadata={"Software": None})  # the same data, the same file
    with Image.open(path) as picture:
        opaque = picture.convert("RGB")
    opaque.quantize(256, dither=Image.Dither.NONE).save(path, "PNG", optimize=True)
    return [path.name]


def subplots(
    columns: int, title: str, panel: tuple[float, float] = (4.6, 3.8), rows: int = 1
) -> tuple[Any, Any]:
    """A figure with a title and light grids, and its axes in one list; `panel` is one's, inches."""
    from matplotlib.figure import Figure

    width, height = panel
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    figure.suptitle(title)
    found = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in found:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, found


def draw(
    makers: Mapping[str, Callable[[dict[str, Any]], Any]],
    result: dict[str, Any],
    folder: Path,
    stem: str,
) -> list[str]:
    """Draw a figure with each maker and write it as `stem`-name; returns the files' names.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    check_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, make in makers.items():
        files += save(make(result), folder / f"{stem}-{name}")
    return files
