"""Coupled Jacobi decoding keeps the target's joint distribution, whatever its options.

The targets are those of `fakes`: every prefix has another distribution, read from the real slot
cache. A correct engine fails one of these tests with probability `fakes.ERROR`; seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_distributions import Processed, cut
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation import logits_process as hf

import sooner
import tiny_canvas
from covering import diagonal, pairwise
from fake_models import FakeAdapter, FakeCanvas, FakeGuided, adapt_fakes, generate_ids
from fakes import ERROR, Table, chi_square
from sooner import Autoregressive, CoupledJacobi
from sooner.engine.acceptance import residual
from sooner.engine.grid import TokenGrid
from sooner.engine.noise import Purpose
from sooner.engine.sampling import pick
from sooner.methods import jacobi
from sooner.methods.jacobi.couplings import Draws, JacobiWindow, at_random, copied

VOCAB, LENGTH, SAMPLES = 3, 4, 5000
TARGET = Table(VOCAB, LENGTH, seed=1)
SHARED, PLAIN = Table(VOCAB, 4, seed=4), Autoregressive(shared_noise=True)
COUPLINGS = ("independent", "maximal", "gumbel")
PROCESSORS: dict[str, list[Any]] = {
    "plain": [],
    "zeros": [],
    "cold": [hf.TemperatureLogitsWarper(0.6)],
    "top-k": [hf.TopKLogitsWarper(2)],
    "top-p": [hf.TopPLogitsWarper(0.8)],
    "all": [hf.TemperatureLogitsWarper(1.4), hf.TopKLogitsWarper(2), hf.TopPLogitsWarper(0.9)],
}
CASES = pairwise(
    {
        "processing": list(PROCESSORS), "window": (1, 2, 3, 5), "coupling": COUPLINGS,
        "strength": (0.0, 0.5, 1.0), "init": ("last", "random", "left"),
    },
    lambda case: True,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_sampled_sequences_follow_the_targets_joint_distribution(case: dict[str, Any]) -> None:
    processing = case["processing"]
    table = Table(VOCAB, LENGTH, seed=3, zeros=True) if processing == "zeros" else TARGET
    processors = LogitsProcessorList(PROCESSORS[processing])
    decoder = CoupledJacobi(
        case["window"], case["coupling"], case["strength"], case["init"], "ratio"
    )  # fmt: skip
    samples = generate_ids(decoder, FakeAdapter(table), SAMPLES, LENGTH, processors=processors)
    assert chi_square(samples, Processed(table, processors).joint()) > ERROR


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_rows_that_end_early_follow_the_joint_distribution(coupling: str) -> None:
    """Ends inside a window, and a batch that shrinks while others go on."""
    table = Table(VOCAB, 5, seed=1)
    samples = generate_ids(
        CoupledJacobi(3, coupling, verify="ratio"), FakeAdapter(table), 6000, 5, end=2
    )
    assert chi_square(samples, cut(table.joint(), 2)) > ERROR


@pytest.mark.parametrize(("coupling", "scale"), diagonal(COUPLINGS, (0.0, 0.4, 2.5)))
def test_guided_sequences_follow_the_mixed_joint_distribution(coupling: str, scale: float) -> None:
    """`uncond + scale * (cond - uncond)`, processed after it was mixed."""
    target = FakeGuided(TARGET, Table(VOCAB, LENGTH, seed=7))
    processors = LogitsProcessorList([hf.TopKLogitsWarper(2)] if scale == 2.5 else [])
    samples = generate_ids(
        CoupledJacobi(3, coupling, verify="ratio"),
        target,
        6000,
        LENGTH,
        processors=processors,
        guidance=scale,
    )
    assert chi_square(samples, Processed(target.mixed(scale), processors).joint()) > ERROR
    assert chi_square(samples, TARGET.joint()) < ERROR


def test_what_both_contexts_forbid_stays_forbidden_under_guidance() -> None:
    cond, uncond = Table(VOCAB, LENGTH, seed=3, zeros=True), Table(VOCAB, LENGTH, seed=7)
    rest = torch.where(cond.p > 0, uncond.p, 0.0)
    uncond.p = rest / rest.sum(-1, keepdim=True)
    target = FakeGuided(cond, uncond)
    samples = generate_ids(CoupledJacobi(3, verify="ratio"), target, 6000, LENGTH, guidance=2.0)
    assert chi_square(samples, target.mixed(2.0).joint()) > ERROR


CODES, ROW_END, END = (0, 3), 3, 4
GRIDS = {
    "picture": TokenGrid(2, 2, CODES, row_end=ROW_END, tail=(END,)),
    "clip": TokenGrid(1, 2, CODES, frames=2, row_end=ROW_END, tail=(END,)),
    "continued": TokenGrid(2, 2, CODES, frames=1, row_end=ROW_END, tail=(END,), prefix=1),
    "next-frame": TokenGrid(1, 3, CODES, frames=2, tail=(END,), prefix=3),
}
ON_GRIDS = [
    ("picture", "gumbel", "above", 4),
    ("picture", "maximal", "left", 2),
    ("picture", "independent", "last", 7),
    ("clip", "gumbel", "previous-frame", 3),
    ("clip", "maximal", "random", 5),
    ("continued", "gumbel", "last", 3),
    ("continued", "maximal", "above", 16),
    ("next-frame", "maximal", "previous-frame", 3),
    ("next-frame", "independent", "above", 1),
]


@pytest.mark.parametrize(("name", "coupling", "init", "window"), ON_GRIDS)
def test_pictures_follow_the_joint_distribution_of_what_their_places_allow(
    name: str, coupling: str, init: str, window: int
) -> None:
    grid = GRIDS[name]
    target = FakeCanvas(Table(5, grid.left, seed=6), grid)
    samples = generate_ids(
        CoupledJacobi(window, coupling, init=init, verify="ratio"), target, 6000, grid.left
    )
    assert chi_square(samples, target.joint()) > ERROR


def test_a_text_around_a_picture_follows_the_joint_distribution() -> None:
    """The span begins where the text says so, at another place in every row."""
    begin, text = 4, 5
    grid = TokenGrid(1, 2, (0, 3), tail=(3,), begin=begin)
    table = Table(6, 5, seed=6)
    target = FakeCanvas(table, grid)
    samples = generate_ids(CoupledJacobi(3, verify="ratio"), target, 8000, 5)
    assert chi_square(samples, spelled(table, grid, text)) > ERROR


def spelled(table: Table, grid: TokenGrid, text: int) -> dict[tuple[int, ...], float]:
    """Joint distribution of texts in which each `begin` is followed by a whole span."""
    cells = {(): 1.0}
    for _ in range(table.length):
        grown = {}
        for line, chance in cells.items():
            prefix = 0
            for token in line:
                prefix = prefix * table.vocab + token + 1
            place = grid.place(line, len(line))
            allowed = [3, grid.begin, text]
            if 0 <= place < grid.length:
                allowed = [*range(*grid.codes)] if place < 2 else [3]
            weights = table.p[prefix]
            for token in allowed:
                share = (weights[token] / weights[allowed].sum()).item()
                grown[(*line, token)] = chance * share
        cells = grown
    return cells


# Shared noise: one seed generates the same tokens, whatever is drafted


@pytest.mark.parametrize("method", [PLAIN, *(CoupledJacobi(window) for window in (1, 2, 5))])
def test_what_shared_noise_draws_has_the_models_distribution(method: sooner.Method) -> None:
    samples = generate_ids(method, FakeAdapter(SHARED), 12_000, 4, generator=_seeded(3))
    assert chi_square(samples, SHARED.joint()) > ERROR


WINDOWS = pairwise(
    {"coupling": COUPLINGS, "init": ("last", "random", "left"), "strength": (0.4, 1.0)},
    lambda case: True,
)


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: "-".join(map(str, case.values())))
def test_every_window_and_coupling_generates_the_ids_of_plain_decoding(
    case: dict[str, Any],
) -> None:
    """Rows end at different times here, so the batch shrinks while drafts are pending."""
    table = Table(4, 7, seed=2)
    expected = generate_ids(PLAIN, FakeAdapter(table), 40, 7, end=1, generator=_seeded(9))
    for window in (1, 3, 9):
        method = CoupledJacobi(window, **case, verify="noise")
        samples = generate_ids(method, FakeAdapter(table), 40, 7, end=1, generator=_seeded(9))
        assert torch.equal(samples, expected)


@pytest.mark.parametrize("family", ["janus", "chameleon", "emu3"])
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_a_real_model_draws_the_same_picture_faster(
    family: str, guidance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    canvas, inputs = tiny_canvas.canvas(family), tiny_canvas.inputs(family, 2)
    options = {"seed": 3, "guidance": guidance, "count": 2, "top_p": None, "temperature": 2.0}
    plain = sooner.draw(canvas, inputs, PLAIN, **options)
    for window in (1, 4, 64):
        drawn = sooner.draw(canvas, inputs, CoupledJacobi(window, init="above"), **options)
        assert torch.equal(drawn.tokens, plain.tokens)
        assert drawn.stats.nfe <= plain.stats.nfe


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Planted biases: were one of these not seen, the tests above would prove nothing


def p_value(samples: int = 8000, **options: Any) -> float:
    decoder = CoupledJacobi(3, verify="ratio", **options)
    output_ids = generate_ids(decoder, FakeAdapter(TARGET), samples, LENGTH)
    return chi_square(output_ids, TARGET.joint())


@pytest.mark.slow
def test_leaving_a_draft_as_it_was_and_calling_it_new_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(jacobi.method.COUPLINGS, "maximal", lambda p, q, x, draws: x)
    assert p_value(coupling="maximal") < ERROR


@pytest.mark.slow
def test_one_uniform_a_place_for_verifying_and_for_redrawing_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token kept because its number was small is not a draw from `p` given that number."""

    def draw(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
        mine = draws.noise.uniforms(Purpose.ACCEPT, draws.ahead)
        index = x[..., None]
        stays = mine * q.gather(-1, index)[..., 0] < p.gather(-1, index)[..., 0]
        return torch.where(stays, x, pick(residual(p, q), draws.uniforms(Purpose.REPLACE)))

    monkeypatch.setitem(jacobi.method.COUPLINGS, "maximal", draw)
    assert p_value(30_000, coupling="maximal") < ERROR


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["places", "rounds and places"])
def test_noise_that_is_shared_among_places_is_seen(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hash of the index in the window is right in the first round alone."""

    def noise(draws: Draws, vocab: int) -> Tensor:
        line = draws.ahead if shared == "rounds and places" else torch.zeros_like(draws.ahead)
        still = replace(draws.noise, places=torch.zeros_like(draws.noise.places))
        return still.waiting(Purpose.GUMBEL, line, vocab)

    monkeypatch.setattr(Draws, "waiting", noise)
    assert p_value() < ERROR


@pytest.mark.slow
def test_a_copy_that_claims_to_have_been_drawn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(view: JacobiWindow) -> tuple[Tensor, Tensor]:
        return copied(view, "left")[0], at_random(view)[1]

    monkeypatch.setitem(jacobi.method.FILLINGS, "left", fill)
    assert p_value(init="left") < ERROR
