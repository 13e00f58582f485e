"""Sampling with drafts that are good, bad or adverse keeps the target's joint distribution."""

from __future__ import annotations

import itertools

import pytest
import torch

from fake_models import FakeAdapter, adapt_fakes, generate_ids
from fakes import ERROR, Table, chi_square
from same_drafts import SameDrafts

VOCAB, LENGTH, SAMPLES = 3, 5, 2500
TARGET = Table(VOCAB, LENGTH, seed=1)
LIKELY = max(TARGET.joint().items(), key=lambda item: item[1])[0]

DRAFTS: dict[str, list[list[int]]] = {
    "likeliest": [list(LIKELY)],
    "several": [list(LIKELY), [0, 1, 2, 0, 1], [2, 2], [1]],
    "regions": [list(LIKELY[3:]), list(LIKELY[:3])],
    "everything": [list(text) for text in itertools.product(range(VOCAB), repeat=3)],
}


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


@pytest.mark.parametrize("name", DRAFTS)
def test_sampled_sequences_follow_the_targets_joint_distribution(name: str) -> None:
    method = SameDrafts([DRAFTS[name]], reference_window=2, nodes=8, repeats=name == "several")
    samples = generate_ids(method, FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(samples, TARGET.joint()) > ERROR


def test_a_tolerance_does_not_keep_it() -> None:
    """Else the tests above would prove nothing about the rule."""
    method = SameDrafts([DRAFTS["likeliest"]], acceptance_threshold=0.2, nodes=8)
    samples = generate_ids(method, FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(samples, TARGET.joint()) < ERROR


def test_rows_that_end_early_follow_the_joint_distribution() -> None:
    """Ends inside of drafts, and drafts that are followed in a batch that shrinks."""
    table, end = Table(2, 4, seed=4), 1
    cells: dict[tuple[int, ...], float] = {}
    for text, chance in table.joint().items():
        stop = text.index(end) + 1 if end in text else len(text)
        cell = text[:stop] + (-1,) * (len(text) - stop)
        cells[cell] = cells.get(cell, 0.0) + chance
    method = SameDrafts([[[0, 0, 1], [0, 1], [1, 0]]], reference_window=2, nodes=5)
    samples = torch.cat(
        [generate_ids(method, FakeAdapter(table), 5, 4, end=end) for _ in range(150)]
    )
    assert chi_square(samples, cells) > ERROR
