"""Quality of an arm's drawings, and tests of whether their distribution is plain decoding's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .arms import UNWINDOWED, contender, draw_rows, plain_contender, starts
from .distances import codes_test, energy_test, frechet
from .inception import inception
from .settings import ImagineBenchSettings
from .speed import Progress
from .subjects import Subject

AGAIN = "plain again"
"""Plain decoding with other seeds: the distance between two sets of equal distribution."""
WRONG = (0.9, 0.7)
"""Temperatures of plain decoding whose distribution is another. A test that does not reject them
has no power to reject an arm."""
TESTS = ("features_test", "codes_test")
LEVEL = 0.05
"""A p-value below it rejects."""


@dataclass(frozen=True)
class Drawn:
    """One arm's drawings, one of each prompt.

    Attributes:
        codes: counted from 0, `[n, codes]`.
        pixels: `[n, frames, height, width, 3]`.
        features: `[n, d]`; the judge's, or mean colours without one.
        accuracy: by the judge.
        nfe: target forwards of each.
    """

    codes: np.ndarray
    pixels: Tensor
    features: np.ndarray
    accuracy: dict[str, float]
    nfe: list[int]


def judged(subject: Subject, settings: ImagineBenchSettings, progress: Progress) -> dict[str, Any]:
    """Draw with every arm at the middle window, and hold each set against plain decoding's."""
    window, names = settings.middle, [arm for arm in settings.arms if arm != "hf"]
    sets: dict[str, Drawn] = {}
    for order, name in enumerate([*names, AGAIN]):
        progress(f"{subject.kind}, quality: {name}")
        arm = "plain" if name == AGAIN else name
        # Every arm has seeds of its own: equal ones would tie sets that must be independent.
        sets[name] = collect(subject, settings, arm, settings.seed + 1000 * (1 + order))
    plain = sets["plain"]
    weights = settings.fid_weights
    told = {
        "window": window,
        "init": starts(subject)[-1],
        "drawings": len(plain.nfe),
        "judge": subject.judge.name if subject.judge else None,
        "frechet_by": "sooner_lab.bench.imagine.distances.frechet",
        "arms": [_row(name, one, plain, subject, weights) for name, one in sets.items()],
    }
    return told | {"level": LEVEL, "power": _power(subject, settings, plain, progress)}


def _power(
    subject: Subject, settings: ImagineBenchSettings, plain: Drawn, progress: Progress
) -> list[dict[str, Any]]:
    """What the tests make of arms that are known to be wrong; empty for a single drawing."""
    found = []
    own = subject.canvas.sampling.temperature
    for order, share in enumerate(WRONG):
        progress(f"{subject.kind}, quality: power at {share:g} times the temperature")
        seed = settings.seed - 1000 * (1 + order)
        drawn = collect(subject, settings, "plain", seed, temperature=share * own)
        row = _row(f"plain, T = {share * own:g}", drawn, plain, subject, None)
        tests = [row[name]["p"] for name in TESTS if name in row]
        if tests:
            found.append(row | {"temperature": share * own, "rejected": min(tests) < LEVEL})
    return found


def collect(
    subject: Subject, settings: ImagineBenchSettings, arm: str, seed: int, **options: Any
) -> Drawn:
    """One drawing of each prompt, in ragged batches; `options` as of `draw`."""
    is_plain = arm in UNWINDOWED
    start = starts(subject)[-1]
    one = plain_contender(arm) if is_plain else contender(arm, settings.middle, start, settings)
    method = one.method
    assert method is not None
    numbers = range(settings.quality_samples)
    tokens, nfe = [], []
    for begin in range(0, len(numbers), settings.batch):
        drawing, forwards = draw_rows(
            subject, numbers[begin : begin + settings.batch], method, seed + begin, **options
        )
        tokens.append(drawing.tokens)
        nfe += forwards
    return look(subject, torch.cat(tokens), numbers, nfe)


@torch.no_grad()
def look(subject: Subject, tokens: Tensor, numbers: Sequence[int], nfe: list[int]) -> Drawn:
    """Decode whole spans and have them judged."""
    grid, judge = subject.canvas.grid, subject.judge
    codes = grid.pick_codes(tokens).flatten(1)
    new = codes[:, -(codes.shape[1] - int((grid.code_places() < grid.given).sum())) :]
    pixels = subject.canvas.pixels(tokens).cpu()
    features = pixels.mean((2, 3)).flatten(1) if judge is None else judge.features(pixels)
    accuracy = {} if judge is None else judge.accuracy(pixels, numbers)
    return Drawn(new.numpy(), pixels, features.numpy(), accuracy, nfe)


def _row(
    name: str, one: Drawn, plain: Drawn, subject: Subject, weights: Path | None
) -> dict[str, Any]:
    codes = subject.canvas.grid.codes
    found: dict[str, Any] = {
        "method": name,
        "nfe": float(np.mean(one.nfe)),
        "nfe_deviation": float(np.std(one.nfe)),
        "accuracy": one.accuracy,
    }
    if one is plain or len(one.nfe) < 2:
        return found
    found |= {
        "frechet": frechet(one.features, plain.features),
        "features_test": energy_test(one.features, plain.features),
        "codes_test": codes_test(one.codes, plain.codes, codes[1] - codes[0]),
    }
    if weights is not None:
        found |= inception(one.pixels, plain.pixels, weights)
    return found
