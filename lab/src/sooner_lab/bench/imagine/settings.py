"""What `sooner bench imagine` measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.checks import check_fields, option

from ..fields import names, numbers

ARMS = ("plain", "hf", "sjd", "maximal", "gumbel", "gumbel-noise", "gsd")
KINDS = ("image", "video")
PARTS = ("speed", "batch", "study")
FIXED = {"image": 64, "video": 128}
"""The window that goals are about: the last ones of the paper's tables 1 and 2, so that no goal is
met by the best of many windows."""


@dataclass(frozen=True)
class ImagineBenchSettings:
    """Time plain decoding, HF, SJD, coupled draws and GSD alike, and study their drafts.

    The JSON grows part by part, so that an interrupted run keeps what it has measured. Exits
    with 1 when greedy decoding differs from the model's own by more than a tie.

    Attributes:
        kind: image, video or both.
        image: Model that draws pictures; by default the miniature.
        video: Model that continues clips; by default the miniature.
        arms: Only these; `hf` is the model's own `generate`, `gumbel` is verified by rejection
            sampling as in the paper, `gumbel-noise` by the shared noise itself; plain is always in.
        parts: Only these: speed, batch, study.
        jacobi_windows: Places drafted ahead, L.
        group: Group size of GSD; by default the method's.
        samples: Timed drawings of each arm and window, each of its own prompt and seed.
        batch: Rows drawn together.
        strengths: Coupling strengths of figures 5 and 6.
        rows: Drawings behind each point of the figures.
        gate: Tokens of the greedy parity gate.
        device: auto, cpu, cuda, cuda:1, ...
        dtype: auto, float32, bfloat16 or float16.
        threads: torch threads.
        seed: Of prompts and draws.
    """

    kind: str = option("image", known=(*KINDS, "both"))
    image: str | None = None
    video: str | None = None
    arms: tuple[str, ...] = names("arm", ARMS, "plain")
    parts: tuple[str, ...] = names("part", PARTS)
    jacobi_windows: tuple[int, ...] = numbers("--jacobi-windows", (16, 32, 64, 128))
    group: int | None = None
    samples: int = option(1, 1)
    batch: int = option(8, 1)
    strengths: tuple[float, ...] = numbers("--strengths", (0.0, 0.5, 1.0), float, 0, 1)
    rows: int = option(2, 1)
    gate: int = option(64, 1)
    device: str = "auto"
    dtype: str = "auto"
    threads: int = option(1, 1)
    seed: int = 20_261_121

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is drawn."""
        return KINDS if self.kind == "both" else (self.kind,)

    @property
    def middle(self) -> int:
        """The window of the study: the paper's 32, or the one nearest to it."""
        return min(self.jacobi_windows, key=lambda window: (abs(window - 32), window))
