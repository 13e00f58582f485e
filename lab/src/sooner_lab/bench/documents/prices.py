"""Forwards priced by a table of GPU step times: a second clock, which no measured time enters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sooner.errors import SoonerError

from ...theory import Curve

A100_3B = {
    1: 0.0250,
    64: 0.0250,
    256: 0.0260,
    512: 0.0330,
    1024: 0.0500,
    2048: 0.0880,
    4096: 0.1650,
}
"""Seconds of a forward of 3 B parameters in bf16 on an A100 by its tokens, the machine and size of
the paper's dots.ocr. **Assumed, not measured**: HF's step of 28 layers is bound by launches (25
ms), from some hundred tokens on by 2 x 3e9 FLOPs a token at half of 312 TFLOP/s."""

DRAFT = 1.99
"""Seconds of the paper's drafter a page (table 5)."""


@dataclass(frozen=True)
class Prices:
    """What things cost by the table.

    Attributes:
        forward: seconds by tokens of a forward, those of all rows together.
        draft: seconds of a drafter a page.
        told: where that is from.
    """

    forward: Curve
    draft: float
    told: str

    @classmethod
    def assumed(cls) -> Prices:
        return cls(Curve.of(A100_3B), DRAFT, "assumed: 3 B parameters on an A100; draft: paper")

    @classmethod
    def read(cls, path: Path) -> Prices:
        """A file `{"forward": {"1": seconds, ...}, "draft": seconds}`.

        Raises:
            SoonerError: it is no such file.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            forward = {int(size): float(each) for size, each in found["forward"].items()}
            return cls(Curve.of(forward), float(found["draft"]), path.name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SoonerError(
                f"'{path}' holds no step times ({error}); give a JSON file such as "
                '{"forward": {"1": 0.025, "256": 0.026}, "draft": 1.99}'
            ) from error

    def decoding(self, blocks: Mapping[int, int], rows: int = 1) -> float:
        """Seconds of forwards, by how many there were of each block.

        Rows that ended before others are priced until the last one ends, which is too much.
        """
        return sum(count * self.forward(size * rows) for size, count in blocks.items())

    def prefill(self, prompts: Iterable[int]) -> float:
        """Seconds of a prefill of prompts of so many tokens."""
        return self.forward(sum(prompts))
