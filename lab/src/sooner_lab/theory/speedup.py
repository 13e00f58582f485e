"""ParallelVLM's theorems 1 to 6 and lemma 1, as the appendix proves them.

    T_p    seconds of one target forward (a verification costs the same)
    T_q    seconds of one draft forward, the unit of time below: T_q = t = 1
    c      T_p / T_q, the speed ratio; c* after the draft's video tokens are pruned
    gamma  draft tokens of a window
    share  mean accepted part of a window, in (0, 1]; theorems 1, 4 and 5 call it τ
    rate   chance that one draft token passes, given that all before it did; lemma 1 and theorem 6
           call it τ as well

Each `*_time` is the time of one token in units of T_q; `speedup(c, time)` turns it into the
multiple of plain decoding, whose token costs c.

The paper uses one letter τ for `share` and `rate`, and they differ: a window whose tokens pass at
`rate` ends at the first that does not, so `share = expected_accepted(rate, gamma) / gamma`, which
is below `rate` unless gamma is 1 or the rate is 0 or 1. Table 7's τ = 0.41 beside M = 6.82 is a
share: a *rate* of 0.41 has runs of 0.7 tokens. `renewal` has what the pipelines give at a rate.
"""

from __future__ import annotations

from sooner.checks import check_number, check_share, check_whole
from sooner.errors import SoonerError


def speedup(c: float, time: float) -> float:
    """Multiple of plain decoding, `T_p / time`; `time` per token in units of T_q.

    Raises:
        SoonerError: `c` or `time` is not above 0.
    """
    check(c=c)
    check_number("time per token", time, above=True)
    return c / time


def pruned_parallel_speedup(share: float, c: float) -> float:
    """Theorem 1, eq. 7: `share · c*` at window `gamma = c*`.

    The same as theorem 5 at gamma = c. Its example, 1.8 times for LLaVA-OV 7B/72B, divides ratios
    already rounded (9 / 5); table 3's own times give 78.3 / 46.6 = 1.68.
    """
    check(c=c, share=share)
    return share * c


def vanilla_ideal_time(c: float, gamma: int) -> float:
    """Theorem 2, eq. 8: everything accepted, `(gamma + c) / (gamma + 1)`."""
    check(c=c, gamma=gamma)
    return (gamma + c) / (gamma + 1)


def parallel_ideal_time(c: float, gamma: int) -> float:
    """Theorem 3, eq. 9: everything accepted, `max(gamma, c) / gamma`."""
    check(c=c, gamma=gamma)
    return max(gamma, c) / gamma


def vanilla_time(c: float, gamma: int, share: float) -> float:
    """Theorem 4, eq. 10: `(gamma + c) / (share · gamma + 1)`.

    Right for a share. With a rate in its place it is optimistic, see the top of this file.
    """
    check(c=c, gamma=gamma, share=share)
    return (gamma + c) / (share * gamma + 1)


def parallel_time(c: float, gamma: int, share: float) -> float:
    """Theorem 5, eq. 11: `max(gamma, c) / (share · gamma)`.

    `share` is here the mean number of tokens committed in a round over gamma, rounds after a
    rollback included; the equation then holds by definition. It charges no rollback of its own and
    leaves out the token that the target itself chooses at a rejection, so as share -> 0 it goes to
    infinity where the pipeline still commits one token a round.
    """
    check(c=c, gamma=gamma, share=share)
    if share == 0:
        raise SoonerError("share is 0: eq. 11 has no finite time there; use renewal.parallel_time")
    return max(gamma, c) / (share * gamma)


def expected_accepted(rate: float, gamma: int) -> float:
    """Lemma 1, eq. 12: `E[X] = rate (1 - rate^gamma) / (1 - rate)`, X ~ TruncGeo(rate, gamma).

    Draft tokens accepted in a window that ends at the first rejection, without the target's token.
    """
    check(gamma=gamma, rate=rate)
    if rate == 1:
        return float(gamma)
    return rate * (1 - rate**gamma) / (1 - rate)


def parallel_rollback_time(c: float, gamma: int, rate: float) -> float:
    """Theorem 6, eq. 13 as proven: `2 max(gamma, c) / ((1 + rate^gamma) E[X])`.

    Eq. 13 prints `1 + τγ`; the proof and the closed form below it have `1 + τ^γ`, which is used
    here. Only that one agrees with theorem 3 at rate 1 (`1 + τγ` would give a speed-up of
    c (1 + gamma) / 2, above the ideal c).

    What the proof counts: two rounds; if the first window passes whole (chance rate^gamma), the
    second adds E[X], else the second is lost. (Its text says the opposite, "retry if round 1
    fails, which yields E[X]", and calls X a sum of independent accepts, which would be binomial
    with mean rate · gamma; its algebra uses lemma 1.) Left out are, on one side, the target's own
    token at each rejection and the one a pre-verify commits, and on the other the pre-verify that
    follows a rejection in round 2. So it tends to 0 times plain decoding as rate -> 0, where the
    pipeline gives 1, and crosses the truth (`renewal.parallel_time`, bonus=False) near rate 0.93:
    at c = gamma = 9 and rates 0.5, 0.8, 0.872, 0.95 it says 0.50, 1.96, 3.12, 5.73, where the
    pipeline gives 1.33, 2.56, 3.42, 5.47.

    Raises:
        SoonerError: rate is 0, where it is infinite.
    """
    check(c=c, gamma=gamma, rate=rate)
    if rate == 0:
        raise SoonerError("rate is 0: eq. 13 has no finite time there; use renewal.parallel_time")
    return 2 * max(gamma, c) / ((1 + rate**gamma) * expected_accepted(rate, gamma))


def parallel_rollback_speedup(c: int, rate: float) -> float:
    """Closed form below theorem 6, at gamma = c: `½ Σ_{k=1}^{2c} rate^k`."""
    check(gamma=c, rate=rate)
    return 0.5 * sum(rate**k for k in range(1, 2 * c + 1))


def check(
    c: float | None = None,
    gamma: int | None = None,
    rate: float | None = None,
    share: float | None = None,
) -> None:
    """Reject symbols outside their range.

    Raises:
        SoonerError: the first symbol that makes no sense.
    """
    if c is not None and not 0 < c < float("inf"):
        raise SoonerError(f"speed ratio c is {c}; T_p / T_q must be finite and above 0")
    if gamma is not None:
        check_whole("window gamma", int(gamma) if gamma == int(gamma) else gamma)
    for name, value in (("acceptance rate", rate), ("accepted share", share)):
        if value is not None:
            check_share(name, value)
