"""Options that Jacobi decoding refuses, and grouped speculation, exact with groups of one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import sooner
import tiny_canvas
from fake_models import FakeAdapter, FakeCanvas, adapt_fakes, generate_ids, generate_with_stats
from fakes import ERROR, Table, chi_square, row_noise
from methods.doors import refused
from sooner import GSD, CoupledJacobi, SoonerError
from sooner.engine.grid import TokenGrid
from sooner.engine.tree import Tree
from sooner.errors import BadLogitsError
from sooner.methods.jacobi.gsd import reject_groups


@pytest.mark.parametrize("strength", [-0.1, 1.1, math.nan, math.inf, "x", None])
def test_strengths_that_are_no_probability(strength: Any) -> None:
    with refused(SoonerError, "CoupledJacobi", f"strength is {strength!r}", "0 to 1"):
        CoupledJacobi(strength=strength)


@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [
        ("coupling", "gumble", "gumbel"),
        ("coupling", "maximum", "maximal"),
        ("init", "lst", "last"),
        ("init", "previous_frame", "previous-frame"),
    ],
)
def test_unknown_names_get_the_nearest_known_name(option: str, value: str, meant: str) -> None:
    with refused(SoonerError, f"unknown {option} '{value}'", f"did you mean '{meant}'?"):
        CoupledJacobi(**{option: value})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"top_p": 0.0}, "top_p is 0;"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"guidance": -1}, "guidance is -1"),
        ({"guidance": math.nan}, "guidance is nan"),
        ({"guidance": "x"}, "guidance is 'x'"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": 0}, "temperature is 0"),
        ({"temperature": -1.0}, "temperature is -1;"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"count": 0}, "count is 0"),
        ({"count": 1.5}, "count is 1.5"),
    ],
    ids=str,
)
def test_drawing_refuses_what_it_can_not_draw_with(options: dict[str, Any], word: str) -> None:
    with refused(SoonerError, word):
        sooner.draw(tiny_canvas.canvas(), tiny_canvas.prompts(1), **options)


def test_a_prompt_that_leaves_no_room_for_the_picture_is_refused() -> None:
    inputs = tiny_canvas.prompts(1)
    ids = inputs["input_ids"].repeat(1, 20)
    long = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with refused(SoonerError, str(ids.shape[1]), "128", "shorter prompt"):
        sooner.draw(tiny_canvas.canvas(), long)


@pytest.mark.parametrize("coupling", ["independent", "maximal", "gumbel"])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_nan_logits_are_named(coupling: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, or only behind tokens that a window holds."""
    adapt_fakes(monkeypatch)
    table = Table(2, 5, seed=1)
    first = sum(2**depth for depth in range(at))
    table.p[first : first + 2**at] = math.nan
    with refused(BadLogitsError, "NaN", "float32"):
        generate_ids(CoupledJacobi(3, coupling), FakeAdapter(table), 4, 5)


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
