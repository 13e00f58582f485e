"""Coupled Jacobi decoding keeps the target's joint distribution, whatever its options.

The targets are those of `fakes`: every prefix has another distribution, read from the real slot
cache. A correct engine fails one of these tests with probability `fakes.ERROR`; seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_distributions import Processed, cut
from transformers import LogitsProcessorList
from transformers.generation import logits_process as hf

from covering import pairwise
from fake_models import FakeAdapter, FakeCanvas, FakeGuided, adapt_fakes, generate_ids
from fakes import ERROR, Table, chi_square
from sooner import CoupledJacobi
from sooner.engine.grid import TokenGrid

VOCAB, LENGTH, SAMPLES = 3, 4, 8000
TARGET = Table(VOCAB, LENGTH, seed=1)
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
    method = CoupledJacobi(
        case["window"], case["coupling"], case["strength"], case["init"], "ratio"
    )  # fmt: skip
    samples = generate_ids(method, FakeAdapter(table), SAMPLES, LENGTH, processors=processors)
    assert chi_square(samples, Processed(table, processors).joint()) > ERROR


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_rows_that_end_early_follow_the_joint_distribution(coupling: str) -> None:
    """Ends inside a window, and a batch that shrinks while others go on."""
    table = Table(VOCAB, 5, seed=1)
    samples = generate_ids(
        CoupledJacobi(3, coupling, verify="ratio"), FakeAdapter(table), 6000, 5, end=2
    )
    assert chi_square(samples, cut(table.joint(), 2)) > ERROR


@pytest.mark.parametrize("scale", [0.0, 0.4, 2.5])
@pytest.mark.parametrize("coupling", COUPLINGS)
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
