"""The contenders: a name, a window, and a method of ours, or the model's own `generate`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...decoding.stats import EXACT
from ...drawing import Drawing, draw
from ...methods import Autoregressive, CoupledJacobi, Method
from .settings import ImagineSettings
from .subjects import Subject

UNWINDOWED = ("plain", "hf")


@dataclass(frozen=True)
class Contender:
    """One arm at one window.

    Attributes:
        arm: its name among `settings.ARMS`.
        window: places drafted ahead; `None` where nothing is drafted.
        method: how we decode; `None` is the model's own `generate`.
    """

    arm: str
    window: int | None
    method: Method | None

    @property
    def name(self) -> str:
        return self.arm if self.window is None else f"{self.arm} L={self.window}"

    @property
    def mode(self) -> str:
        return EXACT if self.method is None else self.method.mode


def contenders(settings: ImagineSettings) -> list[Contender]:
    """Every arm at every window, plain first."""
    found = []
    for arm in settings.arms:
        windows = (None,) if arm in UNWINDOWED else settings.windows
        found += [contender(arm, window, settings) for window in windows]
    return found


def contender(arm: str, window: int | None, settings: ImagineSettings) -> Contender:
    """One arm at one window."""
    if arm == "hf":
        return Contender(arm, None, None)
    if arm == "plain":
        return Contender(arm, None, Autoregressive())
    assert window is not None
    return Contender(arm, window, BUILDERS[arm](window, settings))


def _sjd(window: int, settings: ImagineSettings) -> Method:
    """As published: independent draws, random first drafts (Teng et al. 2024)."""
    return CoupledJacobi(window, coupling="independent", init="random")


def _gsd(window: int, settings: ImagineSettings) -> Method:
    from ...methods.jacobi.gsd import GSD

    return GSD(window) if settings.group is None else GSD(window, group=settings.group)


BUILDERS: dict[str, Callable[[int, ImagineSettings], Method]] = {
    "sjd": _sjd,
    "maximal": lambda window, settings: CoupledJacobi(window, coupling="maximal"),
    "gumbel": lambda window, settings: CoupledJacobi(window, coupling="gumbel", verify="ratio"),
    "gumbel-noise": lambda window, settings: CoupledJacobi(
        window, coupling="gumbel", verify="noise"
    ),
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
    said: list[int] = []

    def keep(row: int, new: list[int], drafted: int) -> None:
        said.extend(new)
        if len(said) >= tokens:
            raise EnoughError

    inputs = subject.prepare([number])
    with contextlib.suppress(EnoughError):
        draw(subject.canvas, inputs, method, seed=seed, on_tokens=keep, **options)
    return said[:tokens]
