"""How pictures are drawn: frozen, checked when made, hashable to a short text. Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import SoonerError, unknown

METHODS = ("jacobi", "sjd", "gsd", "plain")
COUPLINGS = ("gumbel", "maximal", "independent")
INITS = ("last", "random", "left", "above", "previous-frame")
ALL: Literal["all"] = "all"
MOST_SEEDS = 1 << 63


@dataclass(frozen=True)
class ImagineSettings:
    """How pictures are drawn, and clips continued.

    Attributes:
        method: `jacobi` couples the draws of its iterations, `sjd` draws them independently
            (Teng et al. 2024), `gsd` accepts groups of near codes (lossy), `plain` is one code a
            step.
        window: places drafted ahead; `None` leaves it to the picture, the batch and the device.
        coupling, strength, init: of `jacobi`, see `sooner.CoupledJacobi`; `None` is its own.
        temperature, top_p, guidance: `None` is the checkpoint's own.
        top_k: likewise; `"all"` leaves every code in.
        greedy: take the likeliest code every time.
        seed: of every draw; `None` takes a fresh one, which the record tells.
        count: pictures of the prompt, drawn in one batch.
        size: height and width in pixels, for families that draw in several sizes.
        given: frames that a clip is continued from; `None` is the model's own.
        start: frame of the file from which those are taken; below 0 it counts from the end.
        compare: draw plainly too, and report speed-up, and parity if greedy.

    Raises:
        SoonerError: a value out of range, or two that contradict each other.
    """

    method: str = "jacobi"
    window: int | None = None
    coupling: str | None = None
    strength: float | None = None
    init: str | None = None
    temperature: float | None = None
    top_k: int | Literal["all"] | None = None
    top_p: float | None = None
    guidance: float | None = None
    greedy: bool = False
    seed: int | None = None
    count: int = 1
    size: tuple[int, int] | None = None
    given: int | None = None
    start: int = 0
    compare: bool = False

    def __post_init__(self) -> None:
        for name, known in (("method", METHODS), ("coupling", COUPLINGS), ("init", INITS)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise unknown(name, value, known)
        for name in ("window", "count", "given"):
            self._whole(name, 1)
        self._whole("seed", 0, MOST_SEEDS)
        if self.top_k != ALL:
            self._whole("top_k", 1, hint=", or 'all'")
        self._between("strength", 0, 1)
        self._between("top_p", 0, 1, is_open=True)
        self._between("temperature", 0, math.inf, is_open=True, hint="; --greedy takes the best")
        self._between("guidance", 0, math.inf, hint="; 1 is none")
        self._agrees()

    def _whole(self, name: str, least: int, most: float = math.inf, hint: str = "") -> None:
        value = getattr(self, name)
        if value is None or (type(value) is int and least <= value < most):
            return
        raise SoonerError(
            f"{name} is {value!r}; it must be a whole number of {least} or more{hint}"
        )

    def _between(
        self, name: str, low: float, high: float, is_open: bool = False, hint: str = ""
    ) -> None:
        value = getattr(self, name)
        if value is None:
            return
        above = value > low if is_open else value >= low
        if above and value <= high and math.isfinite(value):
            return
        begin = f"above {low}" if is_open else f"{low} or more"
        bound = f"{begin} and at most {high}" if math.isfinite(high) else begin
        raise SoonerError(f"{name} is {value:g}; it must be {bound}{hint}")

    def _agrees(self) -> None:
        """Refuse what would silently be ignored."""
        if self.method != "jacobi":
            self._refuse(f"method '{self.method}'", "coupling", "strength")
        if self.method == "plain":
            self._refuse("method 'plain'", "window", "init")
        if self.greedy:
            self._refuse("greedy", "temperature", "top_k", "top_p", "coupling", "strength")
            if self.count > 1:
                raise SoonerError(
                    f"count is {self.count}, but greedy draws the same picture every time; "
                    "leave one of them out"
                )

    def _refuse(self, by: str, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None:
                raise SoonerError(f"{name}={value} has no effect with {by}; leave one of them out")

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> ImagineSettings:
        """Build settings from plain data; unknown keys are refused by name."""
        names = [field.name for field in dataclasses.fields(cls)]
        for key in options:
            if key not in names:
                raise unknown("setting", str(key), names)
        values = dict(options)
        if values.get("size") is not None:
            values["size"] = tuple(values["size"])  # JSON knows no tuples
        return cls(**values)

    def sampling_options(self) -> dict[str, Any]:
        """The options of `sooner.draw` that choose codes."""
        if self.greedy:
            kept: dict[str, Any] = {"do_sample": False}
        else:
            kept = {"temperature": self.temperature, "top_p": self.top_p}
            kept = {name: value for name, value in kept.items() if value is not None}
            if self.top_k is not None:
                kept["top_k"] = None if self.top_k == ALL else self.top_k
        return kept if self.guidance is None else {**kept, "guidance": self.guidance}

    def digest(self, *others: Any) -> str:
        """A short hash of these settings and `others` (model, dtype), stable between runs."""
        text = json.dumps([dataclasses.asdict(self), *others], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_size(text: str | None) -> tuple[int, int] | None:
    """`HxW` or one number for a square, in pixels, from the command line.

    Raises:
        SoonerError: anything else.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text.strip().lower())
    if match is None or not int(match[1]) or not int(match[2] or match[1]):
        raise SoonerError(f"size is '{text}'; it must be HEIGHTxWIDTH as 384x384, or one number")
    return int(match[1]), int(match[2] or match[1])


def parse_top_k(text: str | None) -> int | Literal["all"] | None:
    """A whole number, or `all`, from the command line.

    Raises:
        SoonerError: anything else.
    """
    if text is None or text == ALL:
        return text
    try:
        return int(text)
    except ValueError:
        raise SoonerError(f"top_k is '{text}'; it must be a whole number, or 'all'") from None
