"""What a method may build its drafter from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..decoding.grid import GridConstraint
from ..decoding.interface import Adapter, Drafter
from ..decoding.noise import draw_seed
from ..decoding.rows import Rows
from ..decoding.sampling import Processing
from ..decoding.stats import Stats
from ..decoding.stopping import Stopping


@dataclass
class Context:
    """What a method may build its drafter from.

    Attributes:
        target: adapter of the target model.
        inputs: the target's processed inputs on its device, one of each prompt.
        rows: the batch's bookkeeping.
        processing: the processed distribution, to be shared by the draft.
        stopping: when rows end; `stopping.limit` bounds the new tokens of a row.
        stats: where the drafter's own times go.
        generator: source of every draw.
        drafter: the run's drafter, once it is made; a rule may ask it.
        copies: rows that each prompt becomes (`num_return_sequences`).
        guidance: scale of classifier-free guidance; 1 is none.
        constraint: places of the picture that is drawn; `None` for text.
        prefill_chunk: prompt tokens of a row that a model prefills at once; `None` is all of them.
    """

    target: Adapter
    inputs: Mapping[str, Any]
    rows: Rows
    processing: Processing
    stopping: Stopping
    stats: Stats
    generator: torch.Generator | None
    drafter: Drafter | None = None
    copies: int = 1
    guidance: float = 1.0
    constraint: GridConstraint | None = None
    prefill_chunk: int | None = None

    @cached_property
    def noise_seed(self) -> int:
        """Of the noise that is shared (`decoding.noise`), the first draw of the run."""
        return draw_seed(self.generator)

    @property
    def prompts(self) -> int:
        """Prompts in `inputs`; each becomes `copies` rows."""
        return self.rows.batch // self.copies
