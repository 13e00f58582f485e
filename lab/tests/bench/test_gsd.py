"""Grouped speculative decoding: exact with groups of one, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from fake_models import FakeAdapter, FakeCanvas, adapt_fakes, generate_with_stats
from fakes import ERROR, Table, chi_square, row_noise
from sooner import SoonerError
from sooner.engine.grid import TokenGrid
from sooner.engine.tree import Tree
from sooner_lab.bench.imagine.gsd import GSD, reject_groups

LENGTH, SAMPLES = 4, 8000
CODES = Table(5, LENGTH, seed=1)
GRID = TokenGrid(1, LENGTH, codes=(1, 5))
BOOK = torch.tensor([[0.0], [0.1], [5.0], [5.2]])


def canvas() -> FakeCanvas:
    return FakeCanvas(CODES, GRID, BOOK)


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("window", [1, 3])
def test_groups_of_size_1_are_exact(window: int) -> None:
    samples, _ = generate_with_stats(GSD(window, group=1), canvas(), SAMPLES, LENGTH)
    assert chi_square(samples, canvas().joint()) > ERROR


@pytest.mark.usefixtures("_fakes")
def test_larger_groups_accept_more_and_report_that_they_are_not_exact() -> None:
    accepted = []
    for group in (1, 2, 4):
        samples, stats = generate_with_stats(GSD(3, group), canvas(), SAMPLES, LENGTH)
        accepted.append(stats.num_accepted_draft_tokens)
        assert (chi_square(samples, canvas().joint()) < ERROR) == (group > 1)
        assert stats.mode == "relaxed"
        assert stats.method == "gsd"
    assert accepted[0] * 1.05 < accepted[1] < accepted[2]


def test_groups_are_the_nearest_codes_and_weigh_together() -> None:
    """A draft that the target gives nothing is taken for its neighbour's sake."""
    neighbours = torch.tensor([[0, 0], [1, 2], [2, 1], [3, 4], [4, 3]])
    q = torch.tensor([[[0.0, 0.5, 0.0, 0.5, 0.0], [0.0] * 5]]).expand(2, -1, -1)
    p = torch.tensor([[[0.0, 0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0, 1.0]]]).expand(2, -1, -1)
    tree = Tree.chain(torch.tensor([[1], [3]]), [1, 1], q)
    verdict = reject_groups(tree, p, neighbours, row_noise(2))
    assert verdict.accepted.tolist() == [1, 1]
    assert verdict.bonus.tolist() == [4, 4]
    alone = reject_groups(tree, p, torch.arange(5)[:, None], row_noise(2))
    assert alone.accepted.tolist() == [0, 0]
    assert set(alone.bonus.tolist()) <= {2, 4}


@pytest.mark.parametrize(
    "options", [{"group": 0}, {"group": 2.5}, {"jacobi_window": 0}, {"init": "lst"}]
)
def test_bad_options_are_refused_in_a_single_line(options: dict) -> None:
    with pytest.raises(SoonerError) as error:
        GSD(**options)
    assert str(next(iter(options.values()))) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("_fakes")
def test_a_group_larger_than_the_codebook_is_refused() -> None:
    with pytest.raises(SoonerError, match="group is 5, the codebook has 4 codes"):
        generate_with_stats(GSD(2, group=5), canvas(), 1, LENGTH)


@pytest.mark.usefixtures("_fakes")
def test_a_model_without_a_codebook_is_refused() -> None:
    for target in (FakeAdapter(CODES), FakeCanvas(CODES, GRID)):
        with pytest.raises(SoonerError, match="has no codebook; use CoupledJacobi"):
            generate_with_stats(GSD(2), target, 1, LENGTH)
