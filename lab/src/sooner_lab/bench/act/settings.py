"""What `sooner bench act` measures, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sooner.checks import option
from sooner.errors import SoonerError

from ..fields import names, numbers, texts
from ..settings import BenchSettings

ARMS = ("plain", "hf", "strict", "auto", "relaxed")
"""All arms; `relaxed` is one for each tolerance. `plain` is what all others are held against."""
PARTS = ("offline", "loops")


@dataclass(frozen=True)
class ActSettings(BenchSettings):
    """Time the arms on recorded observations, and count successes in closed loops.

    With --json the file grows part by part, so that an interrupted run keeps what it has measured.

    Attributes:
        model: policy; without it, the robot miniature.
        head: draft head; by default the miniature's.
        unnorm_key: data set whose statistics apply.
        envs: environments, such as: reach, push, drawer-open, table.
        data: JSONL of image, instruction, action: your own observations, no simulator and no loops.
        arms: only these arms (plain is always in).
        parts: only offline, loops.
        tolerances: bins of the relaxed arms.
        chosen: the tolerance of tables that show one.
        observations: recorded observations of each environment.
        repeats: timed runs of each arm on each observation.
        episodes: closed-loop episodes of each setting and task.
        batch: episodes side by side.
    """

    model: str | None = option(None, metavar="ID_OR_PATH")
    head: str | None = option(None, metavar="DIR")
    unnorm_key: str | None = option(None, metavar="NAME")
    envs: tuple[str, ...] = texts(("reach", "push", "drawer-open"))
    data: str | None = option(None, metavar="FILE")
    arms: tuple[str, ...] = names("arm", ARMS, "plain")
    parts: tuple[str, ...] = names("part", PARTS)
    tolerances: tuple[int, ...] = numbers("--tolerances", (1, 3, 5, 9, 15))
    chosen: int = option(9, 0)
    observations: int = option(12, 1)
    repeats: int = option(2, 1)
    episodes: int = option(2, 1)
    batch: int = option(8, 1)

    FULL: ClassVar[Mapping[str, Any]] = {"episodes": 17}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chosen not in self.tolerances:
            raise SoonerError(
                f"--chosen is {self.chosen}, which is not among the tolerances "
                f"{', '.join(map(str, self.tolerances))}; add it to --tolerances"
            )
