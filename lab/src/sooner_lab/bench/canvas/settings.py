"""What `sooner bench canvas` measures, its gate and its goals; fixed before any result.

Two kinds of drawings are judged: pictures at L = 32 and clips at L = 64. Their entropy is 2.5 nats
a code, as in the issue that asked for this; `RHO` alone was left to choose. It was chosen by SJD
alone, on 8 drawings of seed 7, which no result has: plain decoding took 3.43, 3.23 and 3.09 times
its forwards for pictures at rho 0.9, 0.95 and 0.98, and 5.58, 4.87 and 4.66 times for clips. The
paper's SJD has 2.32 (table 1, L = 32) and 4.26 (table 2, L = 64), so the last comes nearest. No
coupled draw had been looked at. `--calibrate` does the same.

The first run (seed 20261124) did not pass the gate: with 256 pictures the judge could not tell
GSD's with groups of 3 from the law's (-0.004 nats a code, as far as exact arms scatter). Groups of
3 among deviations of three bins change next to nothing, so what is wrong now is the paper's other
GSD, groups of 10 (table 1), at a new seed; fixed before any drawing of it was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sooner.checks import check_whole
from sooner.errors import SoonerError

from ...worlds.canvas.law import CanvasLaw, sigma_of

CODES, ENTROPY = 64, 2.5
RHO = 0.98
RHOS = (0.0, 0.5, 0.9, 0.95, 0.98)
"""Dependences of the table that shows what `rho` does, and of `--calibrate`."""

PICTURE, CLIP = "picture", "clip"
SHAPES = {PICTURE: (16, 16, 1), CLIP: (12, 12, 4)}
"""Height, width, frames. A clip's first frame is given."""

STARTS = {
    PICTURE: ("random", "last", "left", "above"),
    CLIP: ("random", "last", "left", "above", "previous-frame"),
}
"""What fills the window at first: all that the method has."""

DEFAULT_START = {PICTURE: "above", CLIP: "previous-frame"}
"""Of `CoupledJacobi`, where nothing is asked for."""

COUPLED = ("maximal", "gumbel")
ARMS = ("sjd", *COUPLED)
"""Couplings: all that the method has. All are verified by rejection sampling, as in the paper."""
WINDOWS = (16, 32, 64, 128)
JUDGED_WINDOW = {PICTURE: 32, CLIP: 64}

EXACT_ARMS = ("sjd", "maximal", "gumbel", "gumbel-noise")
"""Whose drawings the judge of quality sees, beside those that it must reject."""

OVER_SJD, SURE = 1.5, 1.3
"""Goal: SJD's forwards over a coupled arm's from the same start, at least, and above what the
interval has to lie. At `JUDGED_WINDOW`, for each coupling and from each start."""

PAPER_SJD = {PICTURE: 2.32, CLIP: 4.26}
NEAR = 0.5
"""Gate: plain's forwards over SJD's from random codes, within this share of the paper's."""

ENTROPY_RANGE = (2.4, 2.6)
"""Gate: mean nats of a code of drawings."""

LEVEL, POWER_LEVEL = 0.05, 0.01
"""Below which p-value a null split is a false alarm, and below which what is wrong must lie."""
FALSE_ALARMS = 0.07
"""Gate: share of null splits, at most."""
COLD = 0.9
"""Temperature of the wrong drawings."""

LEARNT = 0.5
"""Gate of a trained decoder: a code of a real texture has so many nats less, at least, than by how
frequent it is."""
POOL = 512
"""Drawings of a trained decoder of which null splits are halves of random choice."""

BUG = 1e-4
"""P-value below which an exact arm is told as a bug: the command exits with 1."""


@dataclass(frozen=True)
class CanvasSettings:
    """What is measured.

    Attributes:
        drawings: of each arm whose forwards are counted.
        starts: of `STARTS`; those that a kind does not have are left out.
        windows: L; `JUDGED_WINDOW` is always among them.
        judged: drawings of each arm that the judge of quality sees.
        nulls: splits of drawings of the same law.
        timed: drawings of each arm that is timed, one row each; 0 times none.
        rho: dependence; `codes` and `entropy` of a code, nats.
        group: of the GSD arm.
        layers, width: of the target that is timed.
        count_layers, count_width: of the one that is counted; counts do not depend on it.
        model: a run of `sooner train miniature leaves`, whose decoder draws in place of the law:
            pictures alone, without what is known of a law alone.
        calibrate: only tell SJD's forwards at every rho.
        threads, seed: as everywhere.
    """

    drawings: int = 8
    starts: tuple[str, ...] = ("random", "above", "previous-frame")
    windows: tuple[int, ...] = (32, 64)
    judged: int = 256
    nulls: int = 200
    timed: int = 2
    rho: float = RHO
    codes: int = CODES
    entropy: float = ENTROPY
    group: int = 10
    layers: int = 4
    width: int = 256
    count_layers: int = 1
    count_width: int = 32
    model: Path | None = None
    calibrate: bool = False
    threads: int = 1
    seed: int = 20_261_126

    @classmethod
    def full(cls) -> CanvasSettings:
        """Start x coupling x L in full, 32 drawings an arm."""
        return cls(drawings=32, starts=STARTS[CLIP], windows=WINDOWS, timed=8)

    def check(self) -> None:
        """Refuse what can't be measured.

        Raises:
            SoonerError: the first value that makes no sense.
        """
        for name in ("drawings", "judged", "nulls", "group", "layers", "count_layers"):
            check_whole(name, getattr(self, name))
        if max(self.drawings, self.judged) > 256:
            raise SoonerError("drawings and judged are 256 at most, one batch; give fewer")
        if self.judged % 4 or self.judged < 32:
            raise SoonerError(f"judged is {self.judged}; give a multiple of 4 from 32 on")
        for name in ("width", "count_width"):
            if getattr(self, name) % 32:
                raise SoonerError(f"{name} is {getattr(self, name)}; give a multiple of 32")
        if self.model is not None and self.calibrate:
            raise SoonerError("a trained model has no rho to calibrate; leave --calibrate out")
        if not 0 <= self.rho < 1:
            raise SoonerError(f"rho is {self.rho:g}; give 0 to below 1")

    def law(self, kind: str, rho: float | None = None) -> CanvasLaw:
        """Of a kind of drawing."""
        sigma = sigma_of(self.entropy, self.codes)
        return CanvasLaw(*SHAPES[kind], self.codes, self.rho if rho is None else rho, sigma)

    def given(self, kind: str) -> int:
        """Codes that a prompt has."""
        height, width, frames = SHAPES[kind]
        return height * width if frames > 1 else 0

    def starts_of(self, kind: str) -> list[str]:
        """Asked for, as far as the kind has them."""
        return [start for start in STARTS[kind] if start in self.starts]

    def windows_of(self, kind: str) -> list[int]:
        """Asked for, and the one that is judged."""
        return sorted({*self.windows, JUDGED_WINDOW[kind]})
