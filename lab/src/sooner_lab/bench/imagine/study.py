"""What the iterations did, as figures 3 to 6 of the paper show it.

A place is drawn again in every iteration from the moment it enters the window until it is accepted.
Its *life* is that series: `beta`, the acceptance rate `1 - TV` of each iteration (equation 1), and
its drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sooner.engine.interface import Outcome
from sooner.engine.loop import Rule
from sooner.methods import CoupledJacobi
from sooner.methods.context import Context
from sooner.methods.jacobi.couplings import Draws
from sooner.methods.jacobi.method import JacobiDrafter, Shift

from ..run import Progress
from .arms import draw_rows
from .settings import ImagineBenchSettings
from .subjects import Subject

COUPLED = ("maximal", "gumbel")
REACH = (1, 2, 3)
"""N of figure 6."""
LONGEST, ENOUGH = 24, 8
"""Iterations of a place that are counted, and observations without which a mean is not told."""

Life = tuple[list[float], list[int]]
"""The betas of one place, iteration by iteration, and its drafts, one more."""


@dataclass(frozen=True)
class Round:
    """Places that one round drew again; all tensors are `[rows, places]`.

    Attributes:
        rows: original rows.
        places: number of generated tokens before each place.
        drafted: which of them had a draft before.
        distance: total variation between the place's last two distributions.
        old, new: the drafts.
    """

    rows: list[int]
    places: Tensor
    drafted: Tensor
    distance: Tensor
    old: Tensor
    new: Tensor


class TracedDrafter(JacobiDrafter):
    """Drafts as its base does, and keeps what each round drew again in `rounds`."""

    rounds: list[Round]

    def _again(self, outcome: Outcome, shift: Shift, p: Tensor, draws: Draws) -> Tensor:
        coupling, before = self.coupling, list[tuple[Tensor, Tensor]]()

        def recorded(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
            before.append((q, x))
            return coupling(p, q, x, draws)

        self.coupling = recorded
        new = super()._again(outcome, shift, p, draws)
        self.coupling = coupling
        [(q, old)] = before
        counts = torch.tensor(shift.drafted)[:, None]
        self.rounds.append(
            Round(
                rows=list(outcome.rows.active),
                places=draws.places[:, : p.shape[1]].cpu(),
                drafted=torch.arange(p.shape[1]) < counts,
                distance=0.5 * (p - q).abs().sum(-1).cpu(),
                old=old.cpu(),
                new=new.cpu(),
            )
        )
        return new


class TracedJacobi(CoupledJacobi):
    """Decodes as `CoupledJacobi`; `rounds` are those of its last run."""

    drafter: ClassVar[type[JacobiDrafter]] = TracedDrafter
    rounds: ClassVar[list[Round]]  # set for each object

    def build(self, context: Context) -> tuple[JacobiDrafter, Rule]:
        drafter, rule = super().build(context)
        assert isinstance(drafter, TracedDrafter)
        drafter.rounds = list[Round]()
        object.__setattr__(self, "rounds", drafter.rounds)
        return drafter, rule


def study(subject: Subject, settings: ImagineBenchSettings, progress: Progress) -> dict[str, Any]:
    """Return the data of figures 3 to 6 and of the ablation of first drafts, at the middle window.

    All drawings are of the same prompts and seeds; each way of drafting runs once.
    """

    @cache
    def runs(coupling: str, strength: float, init: str) -> tuple[list[Round], list[int]]:
        """Return the rounds, and the forwards of each drawing."""
        progress(f"{subject.kind}, study: {coupling}, strength {strength:g}, first draft {init}")
        method = TracedJacobi(
            settings.middle, coupling=coupling, strength=strength, init=init,
            verify="ratio",  # as in the paper, whatever the strength
        )  # fmt: skip
        _, nfe = draw_rows(subject, range(settings.rows), method, settings.seed)
        return method.rounds, nfe

    whole = {"sjd": runs("independent", 1.0, "last")[0]}  # from the same start as the couplings
    whole |= {name: runs(name, 1.0, "last")[0] for name in COUPLED}
    strengths = []
    for name in COUPLED:
        for strength in settings.strengths:
            coupling = (name, strength) if strength else ("independent", 1.0)  # weakened to nothing
            rounds, nfe = runs(*coupling, "last")
            figures = {"nfe": float(np.mean(nfe)), "nfe_of_drawings": nfe}
            about = {"coupling": name, "strength": strength, **figures}
            strengths.append({**about, "hamming": changes(lives(rounds))})
    inits = []
    near = ["previous-frame"] if subject.canvas.grid.frames > 1 else []
    for init in ("last", "random", "left", "above", *near):
        nfe, single = (runs(name, 1.0, init)[1] for name in ("gumbel", "independent"))
        figures = {"nfe": float(np.mean(nfe)), "nfe_of_drawings": nfe}
        inits.append({"init": init, **figures, "sjd_nfe": float(np.mean(single))})
    return {
        "window": settings.middle,
        "drawings": settings.rows,
        "trajectories": {name: trajectory(rounds) for name, rounds in whole.items()},
        "collisions": {name: collisions(rounds) for name, rounds in whole.items()},
        "strengths": strengths,
        "inits": inits,
    }


def lives(rounds: Sequence[Round]) -> list[Life]:
    """Return the life of every place that was drawn again at least once."""
    by_place: dict[tuple[int, int], Life] = {}
    for entry in rounds:
        columns = (entry.places, entry.drafted, entry.distance, entry.old, entry.new)
        for number, row in enumerate(entry.rows):
            places = zip(*(column[number].tolist() for column in columns), strict=True)
            for place, drafted, distance, old, new in places:
                if drafted:
                    betas, drafts = by_place.setdefault((row, place), ([], [old]))
                    drafts.append(new)
                    betas.append(1 - distance)
    return list(by_place.values())


def trajectory(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return figure 3: mean, deviation and count of beta over a place's iterations."""
    series = [betas for betas, _ in lives(rounds)]
    columns = [[betas[t] for betas in series if len(betas) > t] for t in range(LONGEST)]
    columns = [column for column in columns if len(column) >= ENOUGH]
    return {
        "mean": [round(float(np.mean(column)), 4) for column in columns],
        "deviation": [round(float(np.std(column)), 4) for column in columns],
        "count": [len(column) for column in columns],
    }


def collisions(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return figure 4: `agreed`, how often consecutive drafts agree, and `reachable`, the share
    that a maximal coupling of their distributions could have reached."""
    history = lives(rounds)
    if not history:
        return {"agreed": None, "reachable": None}
    betas = [beta for series, _ in history for beta in series]
    return {"agreed": 1 - changes(history)["1"], "reachable": float(np.mean(betas))}


def changes(history: Sequence[Life]) -> dict[str, float]:
    """Return figure 6: the share of drafts that differ from those N iterations before."""
    shares = {}
    for reach in REACH:
        differ = [
            before != after
            for _, drafts in history
            for before, after in zip(drafts, drafts[reach:], strict=False)
        ]
        shares[str(reach)] = float(np.mean(differ)) if differ else 0.0
    return shares
