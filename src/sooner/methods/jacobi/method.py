"""Speculative coupled decoding: the model's own last iteration is the draft of the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ...decoding.interface import Drafter
from ...decoding.loop import Rule
from ...errors import SoonerError, unknown
from ..base import Context, Method, follow_choices
from ..checks import positive, share
from ..speculative import reject
from .couplings import COUPLINGS, weakened
from .drafter import JacobiDrafter
from .trace import Trace
from .window import FILLINGS


@dataclass(frozen=True)
class CoupledJacobi(Method):
    """Speculative Jacobi decoding with coupled draws (So et al. 2025, algorithms 2, 5 to 7).

    No draft model: each round the target looks at a whole window of drafts, the leading ones are
    verified by rejection sampling, and those behind are drawn anew from the distributions that the
    same forward gave, coupled with what stood there. Exact for every option, because the draft
    distribution of each place is the one it was last drawn from, also behind a rejection.

    Under greedy decoding it is plain Jacobi iteration. Outside of a picture's span (in a text
    around it) nothing is drafted.

    Args:
        window: places drafted ahead, L.
        coupling: `"gumbel"` shares one noise among all iterations, `"maximal"` keeps a draft with
            the greatest possible probability, `"independent"` is SJD (Teng et al. 2024).
        strength: probability that a place is coupled at all, the paper's alpha; 0 is SJD.
        init: first draft of a place. `"last"` draws from the newest distribution at hand,
            `"random"` uniformly, `"left"`, `"above"` and `"previous-frame"` copy a neighbour.
        trace: collects what the iterations did.

    Raises:
        SoonerError: a window below 1, a strength outside 0 to 1, an unknown name.
    """

    window: int = 64
    coupling: str = "gumbel"
    strength: float = 1.0
    init: str = "last"
    trace: Trace | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "jacobi"

    def __post_init__(self) -> None:
        positive(self, "window")
        share(self, "strength")
        for option, known in (("coupling", COUPLINGS), ("init", FILLINGS)):
            value = getattr(self, option)
            if not isinstance(value, str) or value not in known:
                raise unknown(option, str(value), known)

    def largest_block(self) -> int:
        return 1 + self.window

    def drafter(self, context: Context) -> Drafter:
        if self.init in ("above", "previous-frame") and context.constraint is None:
            raise SoonerError(
                f"init='{self.init}' needs a model that draws on a grid; use 'last', 'left' or "
                "'random'"
            )
        return JacobiDrafter(
            context,
            self.window,
            weakened(COUPLINGS[self.coupling], self.strength),
            FILLINGS[self.init],
            self.init,
            context.constraint,
            self.trace,
        )

    def rule(self, context: Context) -> Rule:
        return reject if context.processing.do_sample else follow_choices
