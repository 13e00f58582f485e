"""Lemma 1 of ParallelVLM, and the symbols that its theorems share.

    T_p    seconds of one target forward (a verification costs the same)
    T_q    seconds of one draft forward, the unit of time: T_q = t = 1
    c      T_p / T_q, the speed ratio; c* after the draft's video tokens are pruned
    gamma  draft tokens of a window
    rate   chance that one draft token passes, given that all before it did

The paper writes τ for `rate` and for the accepted share of a window alike, and they differ: a
window whose tokens pass at `rate` ends at the first that does not, so its share is
`expected_accepted(rate, gamma) / gamma`. docs/theory.md says what becomes of theorems 1 to 6, which
were functions up to revision 8db5cd5.
"""

from __future__ import annotations

from sooner.checks import check_number, check_whole
from sooner.errors import SoonerError


def expected_accepted(rate: float, gamma: int) -> float:
    """Lemma 1, eq. 12: `E[X] = rate (1 - rate^gamma) / (1 - rate)`, X ~ TruncGeo(rate, gamma).

    Draft tokens accepted in a window that ends at the first rejection, without the target's token.
    """
    check(gamma=gamma, rate=rate)
    if rate == 1:
        return float(gamma)
    return rate * (1 - rate**gamma) / (1 - rate)


def check(c: float | None = None, gamma: int | None = None, rate: float | None = None) -> None:
    """Reject symbols outside their range.

    Raises:
        SoonerError: the first symbol that makes no sense.
    """
    if c is not None and not 0 < c < float("inf"):
        raise SoonerError(f"speed ratio c is {c}; T_p / T_q must be finite and above 0")
    if gamma is not None:
        check_whole("window gamma", int(gamma) if gamma == int(gamma) else gamma)
    if rate is not None:
        check_number("acceptance rate", rate, 0, 1)
