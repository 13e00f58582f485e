"""Couplings and first drafts of Jacobi decoding: marginals, agreement, and whose copies."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from torch import Tensor

from fakes import ERROR, row_noise
from sooner.engine.grid import GridConstraint, TokenGrid
from sooner.engine.sampling import pick
from sooner.methods.jacobi.couplings import (
    COUPLINGS,
    FILLINGS,
    Coupling,
    Draws,
    JacobiWindow,
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


GRID = TokenGrid(2, 3, codes=(0, 4), frames=2, row_end=4, tail=(5,))
VOCAB, FIRST = 6, [1, 2, 3, 4]


def window(generated: list[int], tokens: list[int], filled: int, size: int) -> JacobiWindow:
    """The places behind `generated`, of which the first `filled` hold `tokens`."""
    place = len(generated)
    places = torch.arange(place, place + size)[None]
    probs = torch.zeros(1, size, VOCAB)
    probs[0, :filled] = 1 / VOCAB
    return JacobiWindow(
        tokens=torch.tensor([tokens + [0] * (size - len(tokens))]),
        probs=probs,
        newest=torch.tensor([[0.0, 0.0, 0.7, 0.0, 0.3, 0.0]]),
        filled=torch.tensor([filled]),
        minimum=filled,
        grid_places=places,
        output=torch.tensor([generated], dtype=torch.long),
        draws=Draws(row_noise(1, seed=3), places[0]),
        constraint=GridConstraint(GRID, VOCAB, torch.device("cpu")),
    )


@pytest.mark.parametrize(
    ("init", "generated", "expected"),
    [
        ("above", FIRST, [1, 2, 3, 4]),
        ("above", [*FIRST, 2], [2, 3, 4]),
        ("left", FIRST, [3, 3, 3, 4]),  # over the row's end; the end itself can't be copied
        ("previous-frame", [*FIRST, 0, 0, 2, 4], [1, 2, 3, 4, 0, 0, 2, 4]),
    ],
)
def test_copies_come_from_the_named_neighbour(
    init: str, generated: list[int], expected: list[int]
) -> None:
    tokens, probs = FILLINGS[init](window(generated, [], 0, len(expected)))
    assert tokens[0].tolist() == expected
    assert torch.allclose(probs.sum(-1), torch.ones(1, len(expected)))
    drawn = probs[0].gather(1, tokens[0, :, None])
    assert (drawn == 1).all(), "a copy was drawn from what has it for certain"


@pytest.mark.parametrize("init", FILLINGS)
def test_every_first_draft_is_allowed_and_possible(init: str) -> None:
    """Also where nothing stands above yet, where the picture ends, and where `newest` has nothing
    that the place allows."""
    for generated in ([], [1], FIRST, [*FIRST, *FIRST, *FIRST]):
        view = window(generated, [], 0, GRID.length - len(generated))
        tokens, probs = FILLINGS[init](view)
        allowed = view.constraint.masks(view.grid_places)
        assert allowed[0].gather(1, tokens[0, :, None]).all()
        assert (probs[0].gather(1, tokens[0, :, None]) > 0).all()
        assert not probs[~allowed].any()
        assert torch.allclose(probs.sum(-1), torch.ones(1, len(tokens[0])))
