"""Distances between two sets of drawings, and whether one distribution explains both.

Drawing `i` of either set was made from the same prompt, so under the hypothesis that both arms
draw from the same distribution the two may be swapped. A permutation test swaps such pairs at
random: it needs no law for the statistic, and tokens of one picture may depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

PERMUTATIONS = 999

Statistic = Callable[[np.ndarray], float]
"""Of a mask `[2 n]` bool that says which of the pooled drawings are in the first set."""


def frechet(one: np.ndarray, two: np.ndarray) -> float:
    """Fréchet distance of two sets of features `[n, d]`, as normal distributions (Heusel 2017).

    `|mu_1 - mu_2|^2 + tr(C_1 + C_2 - 2 (C_1 C_2)^(1/2))`, the last trace as the nuclear norm of
    `C_1^(1/2) C_2^(1/2)`, which is safe where few drawings leave covariances singular.
    """
    a, b = one.astype(np.float64), two.astype(np.float64)
    mean = float(((a.mean(0) - b.mean(0)) ** 2).sum())
    # A centred set over sqrt(n - 1) is a root of its covariance: X_1' X_1 = C_1.
    roots = [(each - each.mean(0)) / np.sqrt(len(each) - 1) for each in (a, b)]
    spread = sum(float((root**2).sum()) for root in roots)
    return mean + spread - 2 * float(np.linalg.svd(roots[0] @ roots[1].T, compute_uv=False).sum())


def energy_test(one: np.ndarray, two: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Energy distance of two sets of features `[n, d]`, and its p-value (Székely & Rizzo 2013)."""
    pooled = np.concatenate([one, two]).astype(np.float64)
    pooled = (pooled - pooled.mean(0)) / (pooled.std(0) + 1e-9)
    apart = np.linalg.norm(pooled[:, None] - pooled[None], axis=-1)  # [2 n, 2 n]

    def statistic(first: np.ndarray) -> float:
        weights = np.where(first, 1 / first.sum(), -1 / (~first).sum())
        return float(-weights @ apart @ weights)

    return permuted(statistic, len(one), seed)


def codes_test(one: np.ndarray, two: np.ndarray, codes: int, seed: int = 0) -> dict[str, float]:
    """Chi-square statistic between the code histograms of two sets `[n, tokens]`, and its p-value.

    Whole drawings are swapped, so the p-value does not pretend that tokens are independent.
    """
    counts = np.stack([np.bincount(row, minlength=codes) for row in np.concatenate([one, two])])
    total = counts.sum(0)
    seen = counts[:, total > 0].astype(np.float64)  # [2 n, codes in use]

    def statistic(first: np.ndarray) -> float:
        a, b = seen[first].sum(0), seen[~first].sum(0)
        return float(((a - b) ** 2 / (a + b)).sum())

    return permuted(statistic, len(one), seed)


def permuted(statistic: Statistic, pairs: int, seed: int = 0) -> dict[str, float]:
    """The statistic of the true split, and the share of splits with pairs swapped that reach it."""
    rng = np.random.default_rng(seed)
    true = np.arange(2 * pairs) < pairs
    here = statistic(true)
    reached = 0
    for _ in range(PERMUTATIONS):
        swapped = rng.random(pairs) < 0.5
        reached += statistic(true ^ np.concatenate([swapped, swapped])) >= here - 1e-12
    return {"statistic": here, "p": (1 + int(reached)) / (1 + PERMUTATIONS)}
