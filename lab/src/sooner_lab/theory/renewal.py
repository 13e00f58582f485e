"""What each pipeline gives when every draft token passes at one rate: exact, by renewal.

Symbols as in `speedup`. A *cycle* runs from one rejection to the next. Its accepted draft tokens G
are geometric, P(G >= k) = rate^k, and the target's correction ends it, so it has 1 / (1 - rate)
tokens on average. What differs between the pipelines is how many rounds a cycle takes. Valid for
step times that do not depend on the number of tokens, and without transfer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sooner.errors import SoonerError

from .speedup import check, expected_accepted


def vanilla_time(c: float, gamma: int, rate: float) -> float:
    """Time per token of sequential decoding, `(gamma + c) / (E[X] + 1)`, in units of T_q.

    Theorem 4 with lemma 1 in place of `share · gamma` (Leviathan et al. 2023, eq. 1).
    """
    check(c=c, gamma=gamma, rate=rate)
    return (gamma + c) / (expected_accepted(rate, gamma) + 1)


def parallel_time(c: float, gamma: int, rate: float, bonus: bool = True) -> float:
    """Time per token of algorithm 1's lock-step rounds, in units of T_q.

    A round lasts `max(gamma, c)`. The first of a cycle is the pre-verify and checks token 1.

    - `bonus`: each later round checks gamma tokens, the last being the first of the window drafted
      meanwhile, so a cycle has `1 + ceil(G / gamma)` rounds: `1 + rate / (1 - rate^gamma)`.
    - otherwise (algorithm 1 to the letter): the second round checks the gamma - 1 left of the first
      window, later ones gamma: `1 + rate + rate^gamma / (1 - rate^gamma)`.
    """
    check(c=c, gamma=gamma, rate=rate)
    length = max(gamma, c)
    if rate == 1:
        return length / gamma
    return length * (1 - rate) * _rounds(gamma, rate, bonus)


def _rounds(gamma: int, rate: float, bonus: bool) -> float:
    whole = rate**gamma
    if bonus or gamma == 1:  # with gamma = 1 nothing is left after a pre-verify
        return 1 + rate / (1 - whole)
    return 1 + rate + whole / (1 - whole)


def best_draft_length(c: float, rate: float, largest: int = 64) -> int:
    """Draft tokens a round of the parallel pipeline: eq. 6's `c*` rounded to the faster side.

    Appendix A rounds by feel (down where rounds are long and runs short, up where rounds are
    short and runs long); here both neighbours are priced.
    """
    check(c=c, gamma=largest, rate=rate)
    low = min(max(1, math.floor(c)), largest)
    high = min(max(1, math.ceil(c)), largest)
    return min((low, high), key=lambda gamma: parallel_time(c, gamma, rate))


def rate_of_run(accepted: float) -> float:
    """Rate whose runs have `accepted` draft tokens between two rejections: `M / (M + 1)`.

    This is M as PEARL's published code counts it: corrections left out, empty runs included.

    Raises:
        SoonerError: `accepted` is negative or not finite.
    """
    if not 0 <= accepted < math.inf:
        raise SoonerError(f"run length is {accepted}; it must be finite and not below 0")
    return accepted / (accepted + 1)


def rate_of_round(tokens: float, gamma: int) -> float:
    """Rate at which a round of sequential decoding commits `tokens`, the target's own included.

    Inverts `E[X] + 1` of lemma 1.

    Raises:
        SoonerError: `tokens` is not between 1 and gamma + 1.
    """
    check(gamma=gamma)
    if not 1 <= tokens <= gamma + 1:
        raise SoonerError(
            f"{tokens} tokens a round do not fit a window of {gamma}; give 1 to {gamma + 1}"
        )
    return _bisect(lambda rate: expected_accepted(rate, gamma) + 1 - tokens)


def _bisect(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
