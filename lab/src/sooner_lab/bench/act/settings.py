"""What `sooner bench act` measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCES = (1, 3, 5, 9, 15)
ARMS = ("plain", "hf", "strict", "auto", "relaxed")
"""All arms; `relaxed` is one for each tolerance. `plain` is what all others are held against."""
PARTS = ("offline", "trees", "loops")
ENVS = ("reach", "push", "drawer-open")


@dataclass(frozen=True)
class ActSettings:
    """What is measured.

    Attributes:
        model, head: checkpoint folders or hub ids; `None` is the robot miniature and its head.
        unnorm_key: of the observations, where the policy knows several data sets.
        envs: environments of observations and loops.
        data: JSONL of recorded observations instead of the environments'; there are no loops then.
        arms: among `ARMS`.
        parts: among `PARTS`.
        tolerances: bins of the relaxed arms.
        chosen: tolerance of the tables that show one; it is among `tolerances`.
        observations: of each environment, timed.
        repeats: timed runs of each arm on each observation.
        episodes: of each environment and setting in closed loops.
        batch: episodes that run side by side.
        device, dtype, threads, seed: as everywhere.
    """

    model: str | None = None
    head: str | None = None
    unnorm_key: str | None = None
    envs: tuple[str, ...] = ENVS
    data: str | None = None
    arms: tuple[str, ...] = ARMS
    parts: tuple[str, ...] = PARTS
    tolerances: tuple[int, ...] = TOLERANCES
    chosen: int = 9
    observations: int = 12
    repeats: int = 2
    episodes: int = 2
    batch: int = 8
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = 1
    seed: int = 20_261_121
