"""The contenders: a name, a window, and a method of ours, or the model's own `generate`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sooner.drawing import Drawing, draw
from sooner.engine.stats.run import EXACT
from sooner.methods import Autoregressive, CoupledJacobi, Method

from .settings import ImagineBenchSettings
from .subjects import Subject

UNWINDOWED = ("plain", "hf")


@dataclass(frozen=True)
class ImagineContender:
    """One arm at one window.

    Attributes:
        arm: its name among `settings.ARMS`.
        jacobi_window: places drafted ahead; `None` where nothing is drafted.
        init: first draft of a place, likewise.
        method: how we decode; `None` is the model's own `generate`.
    """

    arm: str
    jacobi_window: int | None
    init: str | None
    method: Method | None

    @property
    def name(self) -> str:
        return (
            self.arm
            if self.jacobi_window is None
            else f"{self.arm} L={self.jacobi_window} from {self.init}"
        )

    @property
    def mode(self) -> str:
        return EXACT if self.method is None else self.method.mode


def starts(subject: Subject) -> tuple[str, str]:
    """First drafts of a place that every arm is measured from: a random code, as SJD was published
    with (Teng et al. 2024), and the neighbour that resembles it, the default of `CoupledJacobi`."""
    return "random", "above" if subject.canvas.grid.frames == 1 else "previous-frame"


def contenders(subject: Subject, settings: ImagineBenchSettings) -> list[ImagineContender]:
    """Every arm from every start at every window, plain first."""
    arms = []
    for arm in settings.arms:
        if arm in UNWINDOWED:
            arms.append(plain_contender(arm))
            continue
        for init in starts(subject):
            arms += [contender(arm, window, init, settings) for window in settings.jacobi_windows]
    return arms


def plain_contender(arm: str) -> ImagineContender:
    """One of `UNWINDOWED`."""
    return ImagineContender(arm, None, None, Autoregressive() if arm == "plain" else None)


def contender(arm: str, window: int, init: str, settings: ImagineBenchSettings) -> ImagineContender:
    """One arm that drafts, at one window, from one start."""
    return ImagineContender(arm, window, init, BUILDERS[arm](window, init, settings))


def _coupled(coupling: str, verify: str = "ratio") -> Callable[..., Method]:
    def build(window: int, init: str, settings: ImagineBenchSettings) -> Method:
        return CoupledJacobi(window, coupling=coupling, init=init, verify=verify)

    return build


def _gsd(window: int, init: str, settings: ImagineBenchSettings) -> Method:
    from sooner.methods.jacobi.gsd import GSD

    groups = {} if settings.group is None else {"group": settings.group}
    return GSD(window, init=init, **groups)


BUILDERS: dict[str, Callable[[int, str, ImagineBenchSettings], Method]] = {
    "sjd": _coupled("independent"),
    "maximal": _coupled("maximal"),
    "gumbel": _coupled("gumbel"),
    "gumbel-noise": _coupled("gumbel", "noise"),
    "gsd": _gsd,
}


def draw_rows(
    subject: Subject, numbers: Sequence[int], method: Method, seed: int, **options: Any
) -> tuple[Drawing, list[int]]:
    """Draw the prompts with these numbers in one batch of ragged rows.

    Returns:
        The drawing, and the target forwards that each of its rows took, its prefill included: what
        a batch of that row alone would have needed.
    """
    commits: Counter[int] = Counter()

    def count(row: int, tokens: list[int], drafted: int) -> None:
        commits[row] += 1

    inputs = subject.prepare(numbers)
    drawing = draw(subject.canvas, inputs, method, seed=seed, on_tokens=count, **options)
    return drawing, [commits[row] for row in range(len(numbers))]


class EnoughError(Exception):
    """Ends a run that has drawn all that was wanted of it."""


def draw_beginning(
    subject: Subject, number: int, method: Method, seed: int, tokens: int, **options: Any
) -> list[int]:
    """The first `tokens` new tokens of one drawing, at the cost of no more than them."""
    output_ids: list[int] = []

    def keep(row: int, new: list[int], drafted: int) -> None:
        output_ids.extend(new)
        if len(output_ids) >= tokens:
            raise EnoughError

    inputs = subject.prepare([number])
    with contextlib.suppress(EnoughError):
        draw(subject.canvas, inputs, method, seed=seed, on_tokens=keep, **options)
    return output_ids[:tokens]
