"""Speculative coupled decoding as the paper prints it (So et al. 2025, algorithms 3, 5 and 6).

Plain Python, one place after the other, sharing nothing with the package: its own rejection
sampling, its own noise. Symbols as in the paper: `X` the tokens, `p` the newest distribution of
each place, `q` the one before, `i` the first place that is not fixed, `L` the window, `N` the
length. The window is cut at `N`. `NFE` counts evaluations of the model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

Distribution = list[float]
Model = Callable[[list[int]], Distribution]
"""From the tokens before a place to the distribution of its token."""


def sample(weights: Distribution, rng: random.Random) -> int:
    return rng.choices(range(len(weights)), weights)[0]


def mrs(p: Distribution, q: Distribution, x: int, rng: random.Random) -> tuple[int, int]:
    """Algorithm 3: the token, and 1 if it is `x` accepted."""
    if rng.random() * q[x] <= p[x] and p[x] > 0:
        return x, 1
    rest = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    return sample(rest if sum(rest) > 0 else p, rng), 0


def maximal(model: Model, vocab: int, L: int, N: int, seed: int) -> tuple[list[int], int]:  # noqa: N803
    """Algorithm 5: one pass of rejection sampling verifies and drafts. Returns `X` and NFE."""
    rng = random.Random(seed)
    q = [[1 / vocab] * vocab for _ in range(N)]
    X = [sample(q[j], rng) for j in range(N)]  # noqa: N806
    i = nfe = 0
    while i < N:
        end = min(i + L, N)
        p = {j: model(X[:j]) for j in range(i, end)}
        nfe += 1
        accept = end
        for j in range(i, end):
            X[j], k = mrs(p[j], q[j], X[j], rng)
            if k == 0 and accept == end:
                accept = j
            q[j] = p[j]
        i = accept + 1 if accept < end else end
    return X, nfe


def gumbel(model: Model, vocab: int, L: int, N: int, seed: int) -> tuple[list[int], int]:  # noqa: N803
    """Algorithm 6: drafts are drawn with the fixed noise of their place. Returns `X` and NFE."""
    rng = random.Random(seed)
    G = [[-math.log(rng.expovariate(1.0)) for _ in range(vocab)] for _ in range(N)]  # noqa: N806
    q = [[1 / vocab] * vocab for _ in range(N)]
    X = [0] * N  # noqa: N806
    i = nfe = 0
    while i < N:
        end = min(i + L, N)
        for j in range(i, end):
            X[j] = max(range(vocab), key=lambda v, j=j: _log(q[j][v]) + G[j][v])
        p = {j: model(X[:j]) for j in range(i, end)}
        nfe += 1
        for j in range(i, end):
            X[j], k = mrs(p[j], q[j], X[j], rng)
            i = j + 1
            if k == 0:
                break
        for j in range(i, end):
            q[j] = p[j]
    return X, nfe


def _log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf
