"""How pictures are drawn: frozen, checked when made, hashable to a short text. Needs no torch."""

from __future__ import annotations

import dataclasses
import re
import secrets
from dataclasses import dataclass
from typing import Any, Literal

from ...checks import check_fields, option
from ...errors import SoonerError
from ..settings import short_hash

METHODS = ("jacobi", "sjd", "plain")
COUPLINGS = ("gumbel", "maximal", "independent")
INITS = ("last", "random", "left", "above", "previous-frame")
ALL: Literal["all"] = "all"
LAST_SEED = (1 << 63) - 1


def parse_size(text: str) -> tuple[int, int]:
    """Parses `HxW` or one number for a square, in pixels, from the command line.

    Raises:
        SoonerError: anything else.
    """
    match = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text.strip().lower())
    if match is None or not int(match[1]) or not int(match[2] or match[1]):
        raise SoonerError(f"size is '{text}'; it must be HEIGHTxWIDTH as 384x384, or one number")
    return int(match[1]), int(match[2] or match[1])


def fresh_seed() -> int:
    """Returns a fresh random seed, whatever this process's generators were seeded with."""
    return secrets.randbelow(1 << 31)


@dataclass(frozen=True)
class ImagineSettings:
    """How pictures are drawn, and clips continued.

    Attributes:
        method: how codes are drafted: `jacobi` couples the draws of its iterations, `sjd` draws
            them independently (Teng et al. 2024), `plain` is one code a step.
        jacobi_window: codes drafted ahead; by default what suits the picture, the batch and the
            device.
        coupling: how `jacobi` couples draws, by default as `sooner.CoupledJacobi` does.
        strength: share of the places that are coupled.
        init: first draft of a place; by default what suits pictures, or clips.
        temperature: of the draws; by default, as the next three, the checkpoint's own.
        top_k: codes drawn from; `all` leaves every code in.
        top_p: share of the probability drawn from.
        guidance: classifier-free guidance; 1 is none.
        greedy: take the likeliest code every time.
        seed: of every draw; by default a fresh one, which the record tells.
        count: pictures of the prompt, drawn in one batch.
        size: height and width in pixels, for families that draw in several sizes.
        given: frames that a clip is continued from; by default the model's own number.
        start: the first of these frames; below 0 it counts from the clip's end.
        compare: draw plainly too, and report steps, speed-up, and parity if greedy.

    Raises:
        SoonerError: a value out of range, or two that contradict each other.
    """

    method: str = option("jacobi", known=METHODS)
    jacobi_window: int | None = option(None, 1)
    coupling: str | None = option(None, known=COUPLINGS)
    strength: float | None = option(None, 0, 1, metavar="SHARE")
    init: str | None = option(None, known=INITS)
    temperature: float | None = option(None, 0, above=True, hint="; --greedy takes the best")
    top_k: int | Literal["all"] | None = option(None)
    top_p: float | None = option(None, 0, 1, above=True)
    guidance: float | None = option(None, 0, hint="; 1 is none")
    greedy: bool = False
    seed: int | None = option(None, 0, LAST_SEED)
    count: int = option(1, 1, names=("-n", "--count"))
    size: tuple[int, int] | None = option(None, metavar="HxW", parse=parse_size)
    given: int | None = option(None, 1)
    start: int = 0
    compare: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.method != "jacobi":
            self._refuse(f"method '{self.method}'", "coupling", "strength")
        if self.method == "plain":
            self._refuse("method 'plain'", "jacobi_window", "init")
        if self.greedy:
            self._refuse("greedy", "temperature", "top_k", "top_p", "coupling", "strength")
            if self.count > 1:
                raise SoonerError(
                    f"count is {self.count}, but greedy draws the same picture every time; "
                    "leave one of them out"
                )

    def _refuse(self, by: str, *names: str) -> None:
        """Refuses options that would silently be ignored."""
        for name in names:
            value = getattr(self, name)
            if value is not None:
                raise SoonerError(f"{name}={value} has no effect with {by}; leave one of them out")

    def sampling_options(self) -> dict[str, Any]:
        """Returns the options of `sooner.draw` that choose codes."""
        if self.greedy:
            options: dict[str, Any] = {"do_sample": False}
        else:
            options = {"temperature": self.temperature, "top_p": self.top_p}
            options = {name: value for name, value in options.items() if value is not None}
            if self.top_k is not None:
                options["top_k"] = None if self.top_k == ALL else self.top_k
        return options if self.guidance is None else {**options, "guidance": self.guidance}

    def digest(self, *extras: Any) -> str:
        """Returns a short hash of these settings and `extras`, the same in all runs."""
        return short_hash(dataclasses.asdict(self), *extras)
