"""Couplings as functions: right marginals, and agreement as often as the theorems say.

Notation as in the code: `x` was drawn from `q`, a coupling draws `y` from `p`. Bounds are met
within four standard deviations.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from torch import Tensor

from fakes import ERROR, row_noise
from sooner.engine.sampling import pick
from sooner.methods.jacobi.couplings import (
    COUPLINGS,
    Coupling,
    Draws,
    gumbel_draw,
    maximal,
    shared_noise,
    weakened,
)

ROWS, VOCAB = 200, 6
SAMPLES = 200 * ROWS


def pair(seed: int, zeros: bool = False) -> tuple[Tensor, Tensor]:
    """Two distributions that overlap in part, `[vocab]`."""
    generator = torch.Generator().manual_seed(seed)
    q = 1.2 * torch.randn(VOCAB, generator=generator)
    p = 0.5 * q + 0.8 * torch.randn(VOCAB, generator=generator)
    if zeros:
        p[1], q[4] = -torch.inf, -torch.inf
    return p.softmax(0), q.softmax(0)


def draws_of(seed: int = 0) -> Draws:
    return Draws(row_noise(ROWS, seed), torch.arange(SAMPLES // ROWS))


def coupled(coupling: Coupling, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """`x` and `y`, `[SAMPLES]`. Both share the noise of their place, as two iterations do."""
    draws = draws_of(3)
    wide = (*draws.places.shape, VOCAB)
    x = gumbel_draw(q.expand(wide), draws)
    y = coupling(p.expand(wide), q.expand(wide), x, draws)
    return x.flatten(), y.flatten()


def follows(tokens: Tensor, p: Tensor) -> float:
    counts = torch.bincount(tokens, minlength=len(p))
    if counts[p == 0].any():
        return 0.0
    real = p > 0
    expected = p[real].double() / p.double().sum() * len(tokens)
    return float(scipy_stats.chisquare(counts[real].double(), expected).pvalue)


def distance(p: Tensor, q: Tensor) -> float:
    return 0.5 * (p - q).abs().sum().item()


def deviation(chance: float) -> float:
    return 4 * math.sqrt(max(chance * (1 - chance), 1e-4) / SAMPLES)


@pytest.mark.parametrize("zeros", [False, True], ids=["full", "zeros"])
@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", COUPLINGS)
def test_both_marginals_are_preserved(name: str, strength: float, zeros: bool) -> None:
    p, q = pair(1, zeros)
    x, y = coupled(weakened(COUPLINGS[name], strength), p, q)
    assert follows(x, q) > ERROR
    assert follows(y, p) > ERROR


@pytest.mark.parametrize("seed", range(6))
def test_maximal_coupling_agrees_as_often_as_1_minus_the_distance(seed: int) -> None:
    """Theorem 2."""
    p, q = pair(seed, zeros=seed % 2 == 0)
    x, y = coupled(maximal, p, q)
    expected = 1 - distance(p, q)
    assert abs((x == y).float().mean().item() - expected) < deviation(expected)


@pytest.mark.parametrize("seed", range(6))
def test_gumbel_coupling_agrees_no_less_often_than_its_bound(seed: int) -> None:
    """Theorem 3, between any two of three iterations; no coupling beats theorem 2."""
    p, q = pair(seed, zeros=seed % 2 == 0)
    third = (p * q.flip(0) + 0.01).sqrt()
    draws = draws_of(seed)
    line = [p, q, third / third.sum()]
    tokens = [
        shared_noise(probs.expand(ROWS, 200, -1), probs, draws.places, draws) for probs in line
    ]
    for i, j in ((0, 1), (1, 2), (0, 2)):
        apart = distance(line[i], line[j])
        agree = (tokens[i] == tokens[j]).float().mean().item()
        bound = (1 - apart) / (1 + apart)
        assert bound - deviation(bound) <= agree <= 1 - apart + deviation(apart)


@pytest.mark.parametrize("strength", [0.25, 0.6, 0.9])
def test_a_weakened_coupling_agrees_as_the_mixture_does(strength: float) -> None:
    """Appendix B, equation 4."""
    p, q = pair(2)
    x, y = coupled(weakened(maximal, strength), p, q)
    expected = strength * (1 - distance(p, q)) + (1 - strength) * (p * q).sum().item()
    assert abs((x == y).float().mean().item() - expected) < deviation(expected)


@pytest.mark.parametrize("name", COUPLINGS)
def test_an_empty_residual_gives_a_token_that_is_possible(name: str) -> None:
    """`p` below `q` everywhere, as rounding can leave it, and a draft that `p` forbids."""
    q = torch.tensor([0.25, 0.0, 0.5, 0.25, 0.0, 0.0])
    p = torch.tensor([0.25, 0.0, 0.5, 0.0, 0.0, 0.0])  # lost a quarter to rounding
    draws = draws_of(1)
    wide = (*draws.places.shape, VOCAB)
    x = torch.full(wide[:2], 3)
    y = COUPLINGS[name](p.expand(wide), q.expand(wide), x, draws)
    assert set(y.unique().tolist()) == {0, 2}


weights = st.lists(
    st.one_of(st.just(0.0), st.floats(2.0**-100, 1024.0, width=32)), min_size=1, max_size=12
).filter(any)
MAX_UNIFORM = 1 - 2.0**-24
uniforms = st.one_of(st.just(0.0), st.just(MAX_UNIFORM), st.floats(0, MAX_UNIFORM, width=32))


@given(weights, uniforms)
def test_pick_never_takes_an_index_of_zero_weight(line: list[float], number: float) -> None:
    mass = torch.tensor([line])
    index = int(pick(mass, torch.tensor([number])))
    assert 0 <= index < len(line)
    assert line[index] > 0
