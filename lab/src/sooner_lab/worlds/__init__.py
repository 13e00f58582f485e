"""The worlds of the miniatures, and of models that ship no weights: each with a training recipe.

The trained weights and samples are in the distribution `sooner-miniatures`. Importing this is
cheap: no torch until a world's own modules are imported.
"""

from __future__ import annotations

FUNCTIONS = {
    "robot": {"ask": f"{__name__}.robot.questions:ask"},
    "video": {
        "ask": f"{__name__}.video.questions:ask",
        "clip": f"{__name__}.video.questions:clip",
    },
}
"""Entry point of the group `sooner.worlds`."""
WORLDS = ("document", "image", "motion", "robot", "video")
"""The miniatures that `sooner train miniature` trains."""
