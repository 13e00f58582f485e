"""What `sooner bench imagine` measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

ARMS = ("plain", "hf", "sjd", "maximal", "gumbel", "gumbel-noise", "gsd")
"""All arms. `hf` is the model's own `generate`; `gumbel` is verified by rejection sampling, as in
the paper, `gumbel-noise` by the shared noise itself."""
KINDS = ("image", "video")
PARTS = ("speed", "batch", "study")
WINDOWS = (16, 32, 64, 128)


@dataclass(frozen=True)
class ImagineBenchSettings:
    """What is measured.

    Attributes:
        image, video: checkpoint folders or hub ids; `None` is the miniature.
        kinds: among `KINDS`.
        arms: among `ARMS`; `plain` is always one of them.
        parts: among `PARTS`.
        jacobi_windows: places drafted ahead, L.
        group: group size of the `gsd` arm; `None` takes the method's own.
        samples: timed drawings of each arm and window, each of its own prompt and seed.
        batch: rows drawn together where time is not what is measured, and in the batch figure.
        strengths: coupling strengths of figures 5 and 6.
        rows: drawings behind each point of the figures.
        gate: tokens of the greedy parity gate.
        device, dtype, threads, seed: as everywhere.
    """

    image: str | None = None
    video: str | None = None
    kinds: tuple[str, ...] = KINDS
    arms: tuple[str, ...] = ARMS
    parts: tuple[str, ...] = PARTS
    jacobi_windows: tuple[int, ...] = WINDOWS
    group: int | None = None
    samples: int = 1
    batch: int = 8
    strengths: tuple[float, ...] = (0.0, 0.5, 1.0)
    rows: int = 2
    gate: int = 64
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = 1
    seed: int = 20_261_121

    @property
    def middle(self) -> int:
        """The window of the study: the paper's 32, or the one nearest to it."""
        return min(self.jacobi_windows, key=lambda window: (abs(window - 32), window))
