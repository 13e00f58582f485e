"""What the recipes of several miniatures share, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One stretch of training with its own optimizer, warm-up and cosine.

    Attributes:
        kind: what is trained, and by which loss.
        steps: optimizer steps.
        rows: samples a step.
        lr: peak learning rate.
        layers: decoder depth from here on; 0 leaves it.
        over: steps of the cosine, where the stage ends before it does; 0 is `steps`.
        bf16: run the loss under bfloat16 autocast.
    """

    kind: str
    steps: int
    rows: int
    lr: float
    layers: int = 0
    over: int = 0
    bf16: bool = False


@dataclass(frozen=True)
class PartRecipe:
    """All that determines the training of one part, but for the machine's rounding.

    Attributes:
        part: its name.
        stages: in order; the first that names `layers` sets the depth to begin with.
        shape: options of the part's shape; what it leaves out has its default.
        seed: of the data, their order and the first weights.
        save_every: steps between resumable states.
        check_every: steps between held-out checks; 0 is never.
    """

    part: str
    stages: tuple[Any, ...]
    shape: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    save_every: int = 100
    check_every: int = 250
