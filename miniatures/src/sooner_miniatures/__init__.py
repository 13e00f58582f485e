"""The files of six tiny trained models: weights, cards and samples.

`sooner.miniatures` finds them for the library by the entry point `MINIATURES`. The worlds that they
were trained on are in `sooner_lab.worlds`.
"""

from __future__ import annotations

from pathlib import Path

from sooner.miniatures import Miniature

_HOME = Path(__file__).parent


def _miniature(
    name: str,
    sample: str | None,
    prompt: str = "",
    places: tuple[str, ...] = (),
    **folders: str,
) -> Miniature:
    home = _HOME / name
    return Miniature(
        name=name,
        target=home / "weights" / "target",
        sample=None if sample is None else home / sample,
        prompt=prompt,
        places=places,
        **{part: home / "weights" / folder for part, folder in folders.items()},
    )


MINIATURES = {
    one.name: one
    for one in (
        _miniature("document", "sample.png", "read the page", draft="draft"),
        _miniature("image", None, "a red circle left of a blue square on green"),
        _miniature("motion", "sample.mp4", tokenizer="tokenizer"),
        _miniature("needle", None),
        _miniature(
            "robot",
            "sample.png",
            "reach the red ball",
            ("reach", "push", "drawer-open", "table"),
            head="head",
        ),
        _miniature("video", "sample.mp4", "describe the scenes in order .", draft="draft"),
    )
}
"""Entry point of the group `sooner.miniatures`."""
