"""Speculative coupled decoding: the model's own last iteration is the draft of the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...checks import option
from ...engine.acceptance import follow_shared_noise
from ...engine.loop import Rule
from ...errors import SoonerError
from ..base import Method
from ..context import Context
from ..speculative import reject
from .couplings import COUPLINGS, weakened
from .drafter import JacobiDrafter
from .window import FILLINGS

VERIFY = ("ratio", "noise")


@dataclass(frozen=True)
class CoupledJacobi(Method):
    """Runs speculative Jacobi decoding with coupled draws (So et al. 2025, algorithms 2, 5 to 7).

    No draft model: each round the target looks at a whole window of drafts, the leading ones are
    verified, and those behind are drawn anew from the distributions that the
    same forward gave, coupled with what stood there. Exact for every option, because the draft
    distribution of each place is the one it was last drawn from, also behind a rejection.

    Under greedy decoding it is plain Jacobi iteration. Outside of a picture's span (in a text
    around it) nothing is drafted.

    Args:
        jacobi_window: places drafted ahead, L.
        coupling: `"gumbel"` shares one noise among all iterations, `"maximal"` keeps a draft with
            the greatest possible probability, `"independent"` is SJD (Teng et al. 2024).
        strength: probability that a place is coupled at all, the paper's alpha; 0 is SJD.
        init: first draft of a place. `"last"` draws from the newest distribution at hand,
            `"random"` uniformly, `"left"`, `"above"` and `"previous-frame"` copy a neighbour. By
            default a neighbour that resembles the place: `"above"` in pictures,
            `"previous-frame"` in clips, else `"last"`; it matters little (docs/log.md).
        verify: how a draft is judged. `"ratio"` is rejection sampling, as in the paper. `"noise"`
            draws each token with the noise of its place, and keeps the draft that it equals: the
            same seed gives the same picture at every window, and under
            `Autoregressive(shared_noise=True)`: code for code in fp32, up to the first tie in
            bf16 (docs/exactness.md). By default `"noise"` where the coupling shares its
            noise in full, else `"ratio"`.

    Raises:
        SoonerError: jacobi_window below 1, a strength outside 0 to 1, an unknown name.
    """

    jacobi_window: int = option(64, 1)
    coupling: str = option("gumbel", known=COUPLINGS)
    strength: float = option(1.0, 0, 1)
    init: str | None = option(None, known=FILLINGS)
    verify: str | None = option(None, known=VERIFY)
    name: ClassVar[str] = "jacobi"
    drafter: ClassVar[type[JacobiDrafter]] = JacobiDrafter

    def largest_block(self) -> int:
        return 1 + self.jacobi_window

    def build(self, context: Context) -> tuple[JacobiDrafter, Rule]:
        if self.init in ("above", "previous-frame") and context.constraint is None:
            raise SoonerError(
                f"init='{self.init}' needs a model that draws on a grid; use 'last', 'left' or "
                "'random'"
            )
        frames = 0 if context.constraint is None else context.constraint.grid.frames
        init = self.init or {0: "last", 1: "above"}.get(frames, "previous-frame")
        coupling = weakened(COUPLINGS[self.coupling], self.strength)
        drafter = self.drafter(context, self.jacobi_window, coupling, FILLINGS[init], init)
        return drafter, follow_shared_noise if self.judges_by_noise else reject

    @property
    def judges_by_noise(self) -> bool:
        """Whether what is drawn is a function of the seed alone, whatever the window."""
        if self.verify is None:
            return self.coupling == "gumbel" and self.strength >= 1
        return self.verify == "noise"
