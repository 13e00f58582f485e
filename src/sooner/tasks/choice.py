"""Draft beside the target or by turns, and from how many visual tokens? Measured, not guessed.

What decides is time and acceptance. `pace` tells how long a step of either model takes alone, and
how long while the other one works too: few cores, a busy machine or one shared GPU make the two
slow each other down, and then turns are better. Acceptance is what earlier files showed. Before the
first it is assumed, and a way that looks best with what is assumed of it is tried, which tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..methods.cost import Acceptance, CostModel
from ..methods.parallel.policy import best_windows
from .pace import BLOCK, Pace

MARGIN = 1.05
"""What `parallel` has to gain on paper: its rounds cost more than their forwards."""
PRUNING_PAYS = 1.4
"""The draft's step with every visual token over that with few, from which on pruning is tried: what
it loses in acceptance it has to win in time. The paper's pairs have 1.6 to 1.7 (table 3)."""
LARGEST, CYCLE = 16, 24
"""Longest window; rounds without a rejection that are worth counting."""

Seen = Callable[[float], Acceptance]
"""Acceptance of drafts that do without a share of the visual tokens."""


@dataclass(frozen=True)
class Way:
    """How to draft, and what to expect of it.

    Attributes:
        is_beside: the draft works beside the target, else by turns.
        prune: share of the visual tokens that it does without.
        acceptance: chance that a draft token is accepted.
        is_seen: that was seen in earlier files; else it is assumed.
        speed: of decoding, over plain decoding's.
    """

    is_beside: bool
    prune: float
    acceptance: float
    is_seen: bool
    speed: float

    def __str__(self) -> str:
        known = "seen in earlier files" if self.is_seen else "assumed"
        return f"{self.speed:.2f}x plain at an acceptance of {self.acceptance:.2f} ({known})"


def choose(pace: Pace, seen: Seen, share: float, is_open: bool, can_prune: bool) -> list[Way]:
    """Every way to draft that comes into question, the one to take first.

    Args:
        pace: of these models here.
        seen: acceptance so far.
        share: of the visual tokens that a pruned draft does without.
        is_open: that share may be 0 as well; else it was asked for.
        can_prune: ranking, which needs a prefill that is whole, is possible.
    """
    whole, rate = seen(0.0), expected(seen, share)
    turns = Way(False, 0.0, rate, whole.is_known, by_turns(pace, rate))
    ways = []
    if is_open or not share:
        ways.append(Way(True, 0.0, rate, whole.is_known, beside(pace, rate)))
    pruned = seen(share)
    tried = pruned.is_known or pace.draft >= PRUNING_PAYS * pace.few
    if share and (not is_open or (can_prune and tried)):
        rate = pruned.rate if pruned.is_known else rate
        ways.append(Way(True, share, rate, pruned.is_known, beside(pace, rate, is_pruned=True)))
    ways.sort(key=lambda way: -way.speed)
    return [*ways, turns] if ways[0].speed >= MARGIN * turns.speed else [turns, *ways]


def expected(seen: Seen, share: float) -> float:
    """Acceptance to expect of a draft that sees everything: no less than a pruned one's."""
    whole, pruned = seen(0.0), seen(share)
    if whole.is_known or not pruned.is_known:
        return whole.rate
    return max(whole.rate, pruned.rate)


def by_turns(pace: Pace, acceptance: float) -> float:
    """Speed of drafting by turns over plain decoding's, which it falls back to."""
    model = _costs(pace.target, pace.block, pace.draft, acceptance)
    return max(model.gain(model.best(LARGEST)), 1.0)


def beside(pace: Pace, acceptance: float, is_pruned: bool = False) -> float:
    """Speed of drafting beside the target over plain decoding's."""
    slower = max(pace.target_beside / pace.target, 1.0)
    draft = max(pace.draft_beside, pace.draft)
    if is_pruned:
        draft *= min(pace.few / pace.draft, 1.0)
    model = _costs(slower * pace.target, slower * pace.block, draft, acceptance)
    return _tokens_a_second(model) * pace.target


class _Expected(CostModel):
    """A cost model whose acceptance is given."""

    def __init__(self, acceptance: float) -> None:
        super().__init__()
        self.expected = acceptance

    @property
    def acceptance(self) -> float:
        return self.expected


def _costs(target: float, block: float, draft: float, acceptance: float) -> CostModel:
    """What the engine would know of such a pair."""
    model = _Expected(acceptance)
    model.costs.add(1, target)
    model.costs.add(BLOCK, block)
    model.observe_draft(draft)
    return model


def _tokens_a_second(model: CostModel) -> float:
    """Speed of `ParallelDrafter`'s own policy (see `methods.parallel.policy`).

    Each rejection begins anew with nothing drafted, so a cycle from one to the next tells all.
    """
    windows, draft = best_windows(model, LARGEST), model.draft_seconds or 0.0
    chance, have, tokens, seconds = 1.0, 0, 0.0, 0.0
    for _ in range(CYCLE):
        window = windows[have]
        forward = model.costs.seconds(window + 1)
        whole = model.acceptance ** (window + 1)
        tokens += chance * (1 - whole) / (1 - model.acceptance)
        seconds += chance * (max(window - have, 0) * draft + forward)
        chance *= whole
        have = min(max(have - window, 0) + int(forward / draft) - 1, LARGEST)
        have = max(have, 0)
    return tokens / seconds
