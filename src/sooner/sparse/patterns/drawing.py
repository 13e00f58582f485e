"""Pictures of masks. matplotlib is needed here only, and imported when something is drawn."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from ...errors import SoonerError
from ..modality import PromptLayout

# Okabe and Ito's colours, which stay apart for the colour-blind.
COLOURS = {
    "dense": "#000000",
    "a-shape": "#E69F00",
    "tri-shape": "#F0E442",
    "vertical-slash": "#0072B2",
    "grid": "#009E73",
    "strided": "#56B4E9",
    "strided-fixed": "#999999",
    "q-boundary": "#D55E00",
    "2d-boundary": "#CC79A7",
}
"""By the pattern's name."""


def check_matplotlib() -> None:
    """Refuse to draw without it.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise SoonerError(
            "drawing needs matplotlib, which is not installed; pip install 'sooner[plots]'"
        )


def tile(seen: Tensor, name: str, layout: PromptLayout) -> Tensor:
    """Returns a picture `[queries, keys, 3]` of a mask in its pattern's colour.

    Pairs that are left out are light grey, and bounds of modalities thin lines.
    """
    from matplotlib.colors import to_rgb

    grey, line, colour = (torch.tensor(to_rgb(c)) for c in ("#EEEEEE", "#BBBBBB", COLOURS[name]))
    picture = torch.ones(*seen.shape, 3)
    picture[torch.ones_like(seen).tril()] = grey
    edges = (layout.modality.diff() != 0).nonzero()[:, 0]
    picture[edges] = line
    picture[:, edges] = line
    picture[seen] = colour
    picture[[0, -1]] = colour
    picture[:, [0, -1]] = colour
    return picture
