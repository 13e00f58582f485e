"""The counter-based noise: Gumbel distributed, without order, the same wherever it is asked for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from scipy import stats as scipy_stats
from torch import Tensor

from fakes import ERROR
from sooner.engine.noise import Purpose, RowNoise, draw_seed


def gumbel(seed: int, rows: Tensor, places: Tensor, vocab: int) -> Tensor:
    """Noise `g = -log w` of each token, `[rows, places, vocab]`."""
    return -RowNoise.start(seed, rows).waiting(Purpose.GUMBEL, places, vocab).log()


def block(seed: int = 7, rows: int = 8, places: int = 32, vocab: int = 512) -> Tensor:
    where = torch.arange(places).expand(rows, -1)
    return gumbel(seed, torch.arange(rows), where, vocab)


@pytest.mark.parametrize("seed", [0, 1, 123_456_789, (1 << 31) - 1])
def test_noise_is_gumbel_distributed(seed: int) -> None:
    values = block(seed).flatten().double().numpy()
    assert scipy_stats.kstest(values, "gumbel_r").pvalue > ERROR


def correlation(a: Tensor, b: Tensor) -> float:
    """P-value of no correlation."""
    return float(scipy_stats.pearsonr(a.flatten().numpy(), b.flatten().numpy()).pvalue)


@pytest.mark.parametrize("lag", [1, 2, 3, 7, 16])
def test_neighbours_along_no_axis_are_correlated(lag: int) -> None:
    values = block(rows=24, places=32, vocab=256)
    for axis in range(3):
        size = values.shape[axis] - lag
        shifted = values.narrow(axis, lag, size)
        assert correlation(values.narrow(axis, 0, size), shifted) > ERROR
    diagonal = values[:-lag, lag:], values[lag:, :-lag]  # row against place
    assert correlation(*diagonal) > ERROR


def test_noise_is_the_same_however_the_window_is_cut() -> None:
    whole = block(9, rows=5, places=20)
    part = gumbel(9, torch.tensor([3, 1]), torch.tensor([[4, 5, 6], [11, 12, 13]]), 512)
    assert torch.equal(part[0], whole[3, 4:7])
    assert torch.equal(part[1], whole[1, 11:14])
    assert torch.equal(block(9, 5, 20, vocab=100), whole[..., :100])


def test_far_places_and_large_vocabularies_do_not_overflow() -> None:
    places = torch.tensor([[0, (1 << 20) - 1, 1 << 20, (1 << 31) - 1]])
    values = gumbel((1 << 31) - 1, torch.tensor([(1 << 31) - 1]), places, 65_536)
    assert values.shape == (1, 4, 65_536)
    assert values.dtype == torch.float32
    assert values.isfinite().all()
    for place in values[0]:
        assert scipy_stats.kstest(place.double().numpy(), "gumbel_r").pvalue > ERROR


# Uniform numbers ------------------------------------------------------------------------------


def uniforms(seed: int = 3, rows: int = 40, places: int = 200, **options: Any) -> Tensor:
    """`[rows, places]`; `purpose`, `salt` and `is_fresh` as of `RowNoise.uniforms`."""
    purpose = options.pop("purpose", Purpose.TOKEN)
    return RowNoise.start(seed, torch.arange(rows)).uniforms(
        purpose, torch.arange(places), **options
    )


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("options", [{}, {"is_fresh": True}, {"salt": torch.tensor(3)}], ids=str)
def test_uniforms_are_uniform(purpose: Purpose, options: dict[str, Any]) -> None:
    values = uniforms(rows=100, places=400, purpose=purpose, **options)
    assert values.dtype == torch.float64
    assert float(values.min()) >= 0
    assert float(values.max()) < 1
    assert scipy_stats.kstest(values.flatten().numpy(), "uniform").pvalue > ERROR
    counts = torch.histc(values.flatten(), bins=64, min=0, max=1)
    assert scipy_stats.chisquare(counts.numpy()).pvalue > ERROR


def pairs() -> dict[str, tuple[Tensor, Tensor]]:
    """Uniforms whose keys differ in one thing, as little as can be."""
    base, salt = uniforms(), torch.tensor(0)
    samples = {
        "rows": (base[:-1], base[1:]),
        "places": (base[:, :-1], base[:, 1:]),
        "row against place": (base[:-1, 1:], base[1:, :-1]),
        "seeds": (base, uniforms(seed=4)),
        "siblings": (uniforms(salt=salt), uniforms(salt=salt + 1)),
        "salt or none": (base, uniforms(salt=salt)),
        "sibling against place": (uniforms(salt=salt)[:, 1:], uniforms(salt=salt + 1)[:, :-1]),
        "fresh or not": (base, uniforms(is_fresh=True)),
    }
    for purpose, other in itertools.pairwise(Purpose):
        samples[f"{purpose.name} {other.name}"] = uniforms(purpose=purpose), uniforms(purpose=other)
        moved = uniforms(purpose=purpose)[:, 1:], uniforms(purpose=other)[:, :-1]
        samples[f"{purpose.name} {other.name} and places"] = moved
    return samples


PAIRS = pairs()


@pytest.mark.parametrize("name", PAIRS)
def test_uniforms_of_neighbouring_keys_are_independent(name: str) -> None:
    """Joint counts on a grid of 8 by 8."""
    a, b = ((values.flatten() * 8).long() for values in PAIRS[name])
    counts = torch.bincount(8 * a + b, minlength=64)
    assert scipy_stats.chisquare(counts.numpy()).pvalue > ERROR
    assert correlation(*PAIRS[name]) > ERROR


def test_a_run_takes_a_single_number_of_the_generator() -> None:
    torch.manual_seed(5)
    first, state = draw_seed(None), torch.get_rng_state()
    assert draw_seed(torch.Generator().manual_seed(5)) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert len({draw_seed(None) for _ in range(100)}) == 100
    assert 0 <= first < 1 << 63
