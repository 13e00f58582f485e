"""Against the algorithms as printed: no more evaluations of the model, and the same distribution.

One evaluation is counted apart: ours runs the prompt first, which gives one token and no window,
where the printed loop evaluates its first window at once.
"""

from __future__ import annotations

import functools

import pytest
import torch

import literal_jacobi as literal
from fake_models import FakeAdapter, adapt_fakes, say_with_stats
from fakes import ERROR, Markov, Table, chi_square
from sooner import CoupledJacobi

VOCAB, LENGTH, ROWS = 12, 64, 80
IMAGES = {
    "rough": Markov(VOCAB, seed=3, spread=1.0),
    "smooth": Markov(VOCAB, seed=3, spread=0.5, smooth=0.25),
}
PRINTED = {"maximal": literal.maximal, "gumbel": literal.gumbel}


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


@functools.cache
def printed(image: str, coupling: str, window: int) -> torch.Tensor:
    """Evaluations that the literal algorithm needs, `[ROWS]`."""
    table = IMAGES[image]
    lines = table.p.tolist()
    model = lambda prefix: lines[table.behind(prefix)]  # noqa: E731
    runs = [PRINTED[coupling](model, VOCAB, window, LENGTH, seed) for seed in range(ROWS)]
    return torch.tensor([float(nfe) for _, nfe in runs])


@pytest.mark.parametrize(("image", "init"), [("rough", "random"), ("smooth", "last")])
@pytest.mark.parametrize("window", [8, 16, 32])
@pytest.mark.parametrize("coupling", PRINTED)
def test_no_more_evaluations_than_the_printed_algorithm(
    coupling: str, window: int, image: str, init: str
) -> None:
    """The printed algorithms begin at random; on a smooth picture our default may do better."""
    method = CoupledJacobi(window, coupling, init=init, verify="ratio")
    _, stats = say_with_stats(method, FakeAdapter(IMAGES[image]), ROWS, LENGTH)
    ours, theirs = stats.num_spec_steps / ROWS, printed(image, coupling, window)
    # Both means scatter by about as much; three deviations of their difference are allowed.
    assert ours <= theirs.mean() + 3 * theirs.std() * (2 / ROWS) ** 0.5


@pytest.mark.parametrize("coupling", PRINTED)
def test_the_printed_algorithm_is_exact_too(coupling: str) -> None:
    """Else a comparison with it would mean nothing."""
    table = Table(3, 4, seed=1)
    lines = table.p.tolist()

    def model(prefix: list[int]) -> list[float]:
        number = 0
        for token in prefix:
            number = number * 3 + token + 1
        return lines[number]

    said = [PRINTED[coupling](model, 3, 3, 4, seed)[0] for seed in range(4000)]
    assert chi_square(torch.tensor(said), table.joint()) > ERROR


def test_coupling_needs_fewer_evaluations_than_independent_draws() -> None:
    steps = {}
    for coupling in ("independent", *PRINTED):
        method = CoupledJacobi(16, coupling, verify="ratio")
        _, stats = say_with_stats(method, FakeAdapter(IMAGES["rough"]), ROWS, LENGTH)
        steps[coupling] = stats.num_spec_steps
    assert max(steps["maximal"], steps["gumbel"]) < 0.9 * steps["independent"]
