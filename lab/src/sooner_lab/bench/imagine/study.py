"""What the iterations did, as figures 3 to 6 of the paper show it.

A place is drawn again in every iteration from the moment it enters the window until it is accepted.
Its *life* is that series: `beta`, the acceptance rate `1 - TV` of each iteration (equation 1), and
its drafts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from sooner.methods import CoupledJacobi
from sooner.methods.jacobi.drafter import Round, Trace

from ..run import Progress
from .arms import draw_rows
from .settings import ImagineBenchSettings
from .subjects import Subject

COUPLED = ("maximal", "gumbel")
REACH = (1, 2, 3)
"""N of figure 6."""
LONGEST, ENOUGH = 24, 8
"""Iterations of a place that are counted, and observations without which a mean is not told."""


@dataclass
class Life:
    """The drafts of one place, iteration by iteration: `drafts` has one entry more than `betas`."""

    betas: list[float] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)


def study(subject: Subject, settings: ImagineBenchSettings, progress: Progress) -> dict[str, Any]:
    """The data of figures 3 to 6 and of the ablation of first drafts, at the middle window."""
    runs = Runs(subject, settings, progress)
    whole = {"sjd": runs("independent")[0]}  # from the same start as the couplings
    whole |= {coupling: runs(coupling)[0] for coupling in COUPLED}
    return {
        "window": settings.middle,
        "drawings": settings.rows,
        "trajectories": {name: trajectory(rounds) for name, rounds in whole.items()},
        "collisions": {name: collisions(rounds) for name, rounds in whole.items()},
        "strengths": [
            _strength(runs, coupling, strength)
            for coupling in COUPLED
            for strength in settings.strengths
        ],
        "inits": _inits(runs, has_frames=subject.canvas.grid.frames > 1),
    }


class Runs:
    """Traced drawings of the same prompts and seeds, each way of drafting run once.

    Called with a coupling, a strength and a first draft; returns the rounds and the forwards of
    each drawing.
    """

    def __init__(
        self, subject: Subject, settings: ImagineBenchSettings, progress: Progress
    ) -> None:
        self.subject, self.settings, self.progress = subject, settings, progress
        self._known: dict[CoupledJacobi, tuple[list[Round], list[int]]] = {}

    def __call__(
        self, coupling: str, strength: float = 1.0, init: str = "last"
    ) -> tuple[list[Round], list[int]]:
        if strength == 0:  # whatever is weakened to nothing
            coupling, strength = "independent", 1.0
        trace = Trace()
        method = CoupledJacobi(
            self.settings.middle,
            coupling=coupling,
            strength=strength,
            init=init,
            verify="ratio",  # as in the paper, whatever the strength
            trace=trace,
        )
        if method not in self._known:
            what = f"{coupling}, strength {strength:g}, first draft {init}"
            self.progress(f"{self.subject.kind}, study: {what}")
            numbers, seed = range(self.settings.rows), self.settings.seed
            _, nfe = draw_rows(self.subject, numbers, method, seed)
            self._known[method] = trace.rounds, nfe
        return self._known[method]


def _strength(runs: Runs, coupling: str, strength: float) -> dict[str, Any]:
    """One point of figures 5 and 6."""
    rounds, nfe = runs(coupling, strength)
    return {
        "coupling": coupling,
        "strength": strength,
        "nfe": float(np.mean(nfe)),
        "nfe_of_drawings": nfe,
        "hamming": changes(lives(rounds)),
    }


def _inits(runs: Runs, has_frames: bool) -> list[dict[str, Any]]:
    """Which first draft serves best, with Gumbel coupling and (`sjd`) with independent draws."""
    result = []
    for init in ["last", "random", "left", "above", *(["previous-frame"] if has_frames else [])]:
        nfe, alone = (runs(coupling, init=init)[1] for coupling in ("gumbel", "independent"))
        result.append(
            {
                "init": init,
                "nfe": float(np.mean(nfe)),
                "nfe_of_drawings": nfe,
                "sjd_nfe": float(np.mean(alone)),
            }
        )
    return result


def lives(rounds: Sequence[Round]) -> list[Life]:
    """The life of every place that was drawn again at least once."""
    by_place: dict[tuple[int, int], Life] = defaultdict(Life)
    for entry in rounds:
        table = zip(
            entry.places.tolist(),
            entry.drafted.tolist(),
            entry.distance.tolist(),
            entry.old.tolist(),
            entry.new.tolist(),
            strict=True,
        )
        for row, columns in zip(entry.rows, table, strict=True):
            for place, drafted, distance, old, new in zip(*columns, strict=True):
                if not drafted:
                    continue
                life = by_place[row, place]
                life.drafts += [new] if life.drafts else [old, new]
                life.betas.append(1 - distance)
    return list(by_place.values())


def trajectory(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return figure 3: mean, deviation and count of beta over a place's iterations."""
    series = [life.betas for life in lives(rounds)]
    length = min(LONGEST, max(map(len, series), default=0))
    columns = [[betas[t] for betas in series if len(betas) > t] for t in range(length)]
    columns = [column for column in columns if len(column) >= ENOUGH]
    return {
        "mean": [round(float(np.mean(column)), 4) for column in columns],
        "deviation": [round(float(np.std(column)), 4) for column in columns],
        "count": [len(column) for column in columns],
    }


def collisions(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return figure 4: `agreed`, how often consecutive drafts agree, and `reachable`, the share
    that a maximal coupling of their distributions could have reached."""
    masks = [entry.drafted for entry in rounds]
    if not any(mask.any() for mask in masks):
        return {"agreed": None, "reachable": None}
    distance = _joined([entry.distance for entry in rounds], masks)
    same = _joined([entry.old == entry.new for entry in rounds], masks)
    return {"agreed": float(same.mean()), "reachable": float(1 - distance.mean())}


def _joined(column: Sequence[Tensor], masks: Sequence[Tensor]) -> np.ndarray:
    """Return the values of all rounds at the places that had a draft before, `[n]`."""
    return np.concatenate(
        [values[mask].numpy() for values, mask in zip(column, masks, strict=True)]
    )


def changes(history: Sequence[Life]) -> dict[str, float]:
    """Figure 6: share of drafts that differ from what stood there N iterations before."""
    shares = {}
    for reach in REACH:
        differ = [
            before != after
            for life in history
            for before, after in zip(life.drafts, life.drafts[reach:], strict=False)
        ]
        shares[str(reach)] = float(np.mean(differ)) if differ else 0.0
    return shares
