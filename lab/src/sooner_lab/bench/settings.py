"""What the settings of benches share. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sooner.checks import check_fields, option


@dataclass(frozen=True)
class BenchSettings:
    """Base of the settings of a bench, of which `sooner_lab.cli.bench` makes the command.

    Attributes:
        device: auto, cpu, cuda, cuda:1, ...
        dtype: auto, float32, bfloat16 or float16.
        threads: torch threads.
        seed: of inputs, orders and draws.

    Raises:
        SoonerError: a value out of range.
    """

    device: str = option("auto", metavar="NAME")
    dtype: str = option("auto", metavar="NAME")
    threads: int | None = option(1, 1)
    seed: int = 20_261_121

    FULL: ClassVar[Mapping[str, Any]] = {}
    """Values that `--full` sets where no option says otherwise."""

    def __post_init__(self) -> None:
        check_fields(self, "--")
