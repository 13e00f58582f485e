"""How many draft tokens to verify next, when drafting goes on meanwhile.

A round that finds `h` tokens drafted and verifies `w` of them gives

    g(w) = (1 - a^(w+1)) / (1 - a) tokens  in  d(h, w) = max(w - h, 0) t + T(w + 1) seconds.

With chance `a^(w+1)` everything turned out as drafted, the token behind the window included; then
the next round finds what was left over and what was drafted during the forward. Otherwise it finds
nothing. So a round is worth its tokens *and* the state it leaves: waiting for a longer window gives
more tokens, a shorter one lets the worker draft for nothing while the target works. The paper's
pre-verify is `w = 0` after every rejection; here the best `w` follows from the measured costs, as
the policy of highest average reward of a Markov decision process with `largest + 1` states.
"""

from __future__ import annotations

import numpy as np

from ..cost import CostModel

SWEEPS = 12
"""Value iterations for each speed that is tried; a chain of full windows is rarely longer."""
BISECTIONS = 14
"""Halvings of the interval of speeds, which starts between plain decoding and the best chain."""
REPLAN = 8
"""Rounds between two looks at the costs."""


class Plan:
    """The best windows by what is known now, made anew every few rounds.

    Args:
        model: costs and acceptance, measured meanwhile.
        largest: most draft tokens of a window.
    """

    def __init__(self, model: CostModel, largest: int) -> None:
        self.model, self.largest = model, largest
        self.windows: list[int] = []  # for each number of tokens that are there
        self._made = -REPLAN

    def choose(self, have: int) -> int:
        """The window to verify where `have` tokens are drafted already."""
        if self.model.rounds >= self._made + REPLAN:
            self._made = self.model.rounds
            self.windows = best_windows(self.model, self.largest)
        return self.windows[min(have, self.largest)]


def best_windows(model: CostModel, largest: int) -> list[int]:
    """The window to verify for each number `0 .. largest` of tokens drafted already.

    Args:
        model: acceptance `a`, draft time `t` and forward times `T`, all measured.
        largest: most draft tokens of a window.
    """
    sizes = np.arange(largest + 1)
    a, t = model.acceptance, max(model.draft_seconds or 0.0, 1e-9)
    forward = np.array([model.costs.seconds(size + 1) for size in range(largest + 1)])  # [windows]
    tokens = (1 - a ** (sizes + 1)) / (1 - a)
    whole = a ** (sizes + 1)
    waiting = np.maximum(sizes[None, :] - sizes[:, None], 0) * t  # [have, windows]
    seconds = waiting + forward[None, :]
    left = np.maximum(sizes[:, None] - sizes[None, :], 0)
    drafted = np.floor(forward[None, :] / t).astype(int)
    following = np.clip(left + drafted - 1, 0, largest)  # the token behind the window is one
    slow, fast = 1.0 / forward[0], float((tokens / forward).max())
    values = np.zeros((largest + 1, largest + 1))
    for _ in range(BISECTIONS):
        speed = (slow + fast) / 2
        value = np.zeros(largest + 1)
        for _ in range(SWEEPS):
            values = tokens[None] - speed * seconds + whole[None] * value[following]
            value = values.max(1)
        if value[0] > 0:  # better than this speed can be had
            slow = speed
        else:
            fast = speed
    return [int(window) for window in values.argmax(1)]
