"""Judging by shared noise: one seed says one thing, whatever drafts, and it is a fair draw."""

from __future__ import annotations

import pytest
import torch

import sooner
import tiny_canvas
from fake_models import FakeAdapter, adapt_fakes, generate_ids
from fakes import ERROR, Table, chi_square
from sooner import Autoregressive, CoupledJacobi
from sooner.methods.jacobi.couplings import COUPLINGS

TABLE = Table(3, 4, seed=4)
PLAIN = Autoregressive(shared_noise=True)


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("method", [PLAIN, *(CoupledJacobi(window) for window in (1, 2, 5))])
def test_what_shared_noise_draws_has_the_models_distribution(method: sooner.Method) -> None:
    samples = generate_ids(method, FakeAdapter(TABLE), 12_000, 4, generator=_seeded(3))
    assert chi_square(samples, TABLE.joint()) > ERROR


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("init", ["last", "random", "left"])
@pytest.mark.parametrize("strength", [0.4, 1.0])
def test_every_window_and_coupling_generates_the_ids_of_plain_decoding(
    coupling: str, init: str, strength: float
) -> None:
    """Rows end at different times here, so the batch shrinks while drafts are pending."""
    table = Table(4, 7, seed=2)
    expected = generate_ids(PLAIN, FakeAdapter(table), 40, 7, end=1, generator=_seeded(9))
    for window in (1, 3, 9):
        method = CoupledJacobi(window, coupling, strength, init, verify="noise")
        samples = generate_ids(method, FakeAdapter(table), 40, 7, end=1, generator=_seeded(9))
        assert torch.equal(samples, expected)


@pytest.mark.parametrize("family", ["janus", "chameleon", "emu3"])
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_a_real_model_draws_the_same_picture_faster(family: str, guidance: float) -> None:
    canvas, inputs = tiny_canvas.canvas(family), tiny_canvas.inputs(family, 2)
    options = {"seed": 3, "guidance": guidance, "count": 2, "top_p": None, "temperature": 2.0}
    plain = sooner.draw(canvas, inputs, PLAIN, **options)
    for window in (1, 4, 64):
        drawn = sooner.draw(canvas, inputs, CoupledJacobi(window, init="above"), **options)
        assert torch.equal(drawn.tokens, plain.tokens)
        assert drawn.stats.nfe <= plain.stats.nfe


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
