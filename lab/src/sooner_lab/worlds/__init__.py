"""The trained tiny models: each has a world, a training recipe, weights and a sample.

`sooner.miniatures` finds them for the library. Importing this is cheap: no torch until a
miniature's own modules are imported.
"""

from __future__ import annotations

from pathlib import Path

from sooner.miniatures import Miniature

_HOME = Path(__file__).parent


def _ships(
    name: str,
    sample: str | None,
    prompt: str = "",
    places: tuple[str, ...] = (),
    functions: tuple[str, ...] = (),
    **folders: str,
) -> tuple[str, Miniature]:
    home = _HOME / name
    weights = {part: home / "weights" / folder for part, folder in folders.items()}
    return name, Miniature(
        name=name,
        target=home / "weights" / "target",
        sample=None if sample is None else home / sample,
        prompt=prompt,
        places=places,
        functions=tuple((one, f"{__name__}.{name}.questions:{one}") for one in functions),
        **weights,
    )


ROBOT_PLACES = ("reach", "push", "drawer-open", "table")
MINIATURES = dict(
    (
        _ships("document", "sample.png", "read the page", draft="draft"),
        _ships("image", None, "a red circle left of a blue square on green", judge="classifier"),
        _ships("motion", "sample.mp4", tokenizer="tokenizer", judge="probe"),
        _ships("robot", "sample.png", "reach the red ball", ROBOT_PLACES, ("ask",), head="head"),
        _ships(
            "video",
            "sample.mp4",
            "describe the scenes in order .",
            functions=("ask", "clip"),
            draft="draft",
        ),
    )
)
"""Entry point of the group `sooner.miniatures`."""
