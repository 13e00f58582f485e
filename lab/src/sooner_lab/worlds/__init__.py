"""The made-up worlds that the miniatures were trained on: pages, captions, clips, tasks.

The trained weights and samples are in the distribution `sooner-miniatures`. Commit `fb9eb109` is
the last that has the recipes by which they were trained; that of `needle` is here. Importing this
is cheap: no torch until a world's own modules are imported.
"""

from __future__ import annotations

FUNCTIONS = {
    "robot": {"ask": f"{__name__}.robot.questions:ask"},
    "video": {"ask": f"{__name__}.video.questions:ask", "clip": f"{__name__}.video.questions:clip"},
}
"""Entry point of the group `sooner.worlds`."""
