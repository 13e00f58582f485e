"""What `sooner bench imagine` measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import option

from ..fields import names, numbers
from ..settings import BenchSettings

ARMS = ("plain", "hf", "sjd", "maximal", "gumbel", "gumbel-noise")
KINDS = ("image", "video")
FIXED = {"image": 64, "video": 128}
"""The window that goals are about: the last ones of the paper's tables 1 and 2, so that no goal is
met by the best of many windows."""


@dataclass(frozen=True)
class ImagineBenchSettings(BenchSettings):
    """Time plain decoding, HF, SJD and coupled draws alike.

    The JSON grows kind by kind, so that an interrupted run keeps what it has measured. Exits
    with 1 when greedy decoding differs from the model's own by more than a tie.

    Attributes:
        kind: image, video or both.
        image: Model that draws pictures; by default the miniature.
        video: Model that continues clips; by default the miniature.
        arms: Only these; `hf` is the model's own `generate`, `gumbel` is verified by rejection
            sampling as in the paper, `gumbel-noise` by the shared noise itself; plain is always in.
        jacobi_windows: Places drafted ahead, L.
        samples: Timed drawings of each arm and window, each of its own prompt and seed.
        gate: Tokens of the greedy parity gate.
    """

    kind: str = option("image", known=(*KINDS, "both"))
    image: str | None = None
    video: str | None = None
    arms: tuple[str, ...] = names("arm", ARMS, "plain")
    jacobi_windows: tuple[int, ...] = numbers("--jacobi-windows", (16, 32, 64, 128))
    samples: int = option(1, 1)
    gate: int = option(64, 1)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is drawn."""
        return KINDS if self.kind == "both" else (self.kind,)
