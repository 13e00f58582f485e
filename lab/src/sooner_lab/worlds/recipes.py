"""How a recipe is declared: what every part of every miniature has, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One stretch of training with its own optimizer, warm-up and cosine.

    Attributes:
        kind: what is trained, and by which loss.
        steps: optimizer steps.
        rows: samples a step, or tokens, as the world's own stage says.
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
class Recipe:
    """All that determines the training of one part, but for the machine's rounding.

    Attributes:
        part: its name.
        stages: in order; the first that names `layers` sets the depth to begin with. What the last
            stage's depth lacks of the shape's is silent layers (`models/silent.py`).
        shape: of the model to end with: its sizes, or a mapping of those that differ from default.
        seed: of the data, their order and the first weights.
        save_every: steps between resumable states.
        check_every: steps between held-out checks; 0 is never.
        start: checkpoint folder whose weights the first stage begins with, seen from the run's own
            folder; empty is fresh weights. The card then repeats that checkpoint's card.
    """

    part: str = "target"
    stages: tuple[Any, ...] = ()
    shape: Any = field(default_factory=dict)
    seed: int = 0
    save_every: int = 100
    check_every: int = 250
    start: str = ""


CHANGEABLE = ("stages", "save_every", "check_every")
"""Fields of a recipe in which a resumed run may differ; of the stages only those not begun."""
