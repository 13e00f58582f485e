"""The judge: a small CNN that reads a picture's attributes, trained on pictures that have been
through the codes, so that it judges what is drawn and not how the codes blur.

    >>> judge = classifier.load(folder)
    >>> judge.attributes(pixels)  # float [n, 3, 64, 64] in 0..1
    [Attributes(forms=('circle', 'cross'), colours=('red', 'blue'), relation='above', ...), ...]

Two captions can describe the same picture ("a left of b", "b right of a"), so predictions are
canonical: described from the left or the top.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from . import world
from .world import Attributes, Picture

CHANNELS = (16, 32, 48, 48)
FEATURES = 64
ARRANGEMENTS = (None, "left of", "above")
FORMS, COLOURS = world.FORMS, tuple(world.COLOURS)
# Heads in order: arrangement, ground, then form and colour of the first and second shape.
HEADS = (len(ARRANGEMENTS), len(COLOURS), len(FORMS), len(COLOURS), len(FORMS), len(COLOURS))
ABSENT = -100  # label of the second shape of a picture with one; cross-entropy skips it


class Classifier(nn.Module):
    """Four strided convolutions, one hidden layer, six heads; fewer than 100,000 weights."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for channels in CHANNELS:
            layers += [nn.Conv2d(before, channels, 3, stride=2, padding=1)]
            layers += [nn.GroupNorm(4, channels), nn.SiLU()]
            before = channels
        self.body = nn.Sequential(*layers)  # [n, 48, 4, 4]
        self.hidden = nn.Linear(CHANNELS[-1] * 16, FEATURES)
        self.heads = nn.Linear(FEATURES, sum(HEADS))

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """The layer below the heads, `[n, 64]`, of pictures in 0..1 `[n, 3, 64, 64]`."""
        return functional.silu(self.hidden(self.body(2 * pixels - 1).flatten(1)))

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Logits of the six heads, `[n, classes]` each."""
        return self.heads(self.features(pixels)).split(HEADS, dim=1)

    @torch.no_grad()
    def attributes(self, pixels: torch.Tensor) -> list[Attributes]:
        """What is seen in pictures in 0..1 `[n, 3, 64, 64]`, told canonically."""
        classes = [logits.argmax(1).tolist() for logits in self(pixels)]
        return [_attributes(row) for row in zip(*classes, strict=True)]

    def accuracy(self, pixels: torch.Tensor, pictures: Sequence[Picture]) -> dict[str, float]:
        """Share of pictures whose attributes are as told.

        Args:
            pixels: `[n, 3, 64, 64]` in 0..1.
            pictures: the n captions with their meaning.

        Returns:
            "forms" and "colours" of shapes (mean over shapes), "relation" and "ground" of
            pictures, and "all": pictures with everything right. Relation is right if shapes are
            arranged as told and the told order fits them at least as well as the other one.
        """
        seen = self.attributes(pixels)
        scores = [
            score(guess, picture.attributes) for guess, picture in zip(seen, pictures, strict=True)
        ]
        return {name: sum(row[name] for row in scores) / len(scores) for name in scores[0]}


def score(seen: Attributes, truth: Attributes) -> dict[str, float]:
    """Agreement of one picture with its caption, 0..1 for each kind of attribute."""
    truth = truth.canonical()
    forms, colours = _share(seen.forms, truth.forms), _share(seen.colours, truth.colours)
    swapped = _share(seen.forms[::-1], truth.forms) + _share(seen.colours[::-1], truth.colours)
    relation = float(seen.relation == truth.relation and forms + colours >= swapped)
    ground = float(seen.ground == truth.ground)
    every = float(forms == colours == relation == ground == 1)
    return {
        "forms": forms, "colours": colours, "relation": relation, "ground": ground, "all": every,
    }  # fmt: skip


def labels(attributes: Attributes) -> list[int]:
    """Class of each head for a caption's meaning; `ABSENT` where there is no second shape."""
    attributes = attributes.canonical()
    classes = [ARRANGEMENTS.index(attributes.relation), COLOURS.index(attributes.ground)]
    for form, colour in zip(attributes.forms, attributes.colours, strict=True):
        classes += [FORMS.index(form), COLOURS.index(colour)]
    return classes + [ABSENT] * (len(HEADS) - len(classes))


def save(model: Classifier, folder: Path) -> None:
    """Write fp16 weights."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({"model_type": "sooner_classifier"}) + "\n")


def load(folder: Path | str) -> Classifier:
    """The classifier of a folder, in fp32 and evaluation mode."""
    model = Classifier()
    weights = load_file(str(Path(folder) / "model.safetensors"))
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    return model.eval()


def _attributes(row: tuple[Any, ...]) -> Attributes:
    arrangement, ground, form_1, colour_1, form_2, colour_2 = row
    count = 1 if ARRANGEMENTS[arrangement] is None else 2
    return Attributes(
        forms=(FORMS[form_1], FORMS[form_2])[:count],
        colours=(COLOURS[colour_1], COLOURS[colour_2])[:count],
        relation=ARRANGEMENTS[arrangement],
        ground=COLOURS[ground],
    )


def _share(seen: tuple[str, ...], truth: tuple[str, ...]) -> float:
    """Share of what was told that is seen in its place."""
    return sum(a == b for a, b in zip(seen, truth, strict=False)) / max(len(seen), len(truth))
