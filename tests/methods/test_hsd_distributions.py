"""Sampling with drafts that are good, bad or adverse keeps the target's joint distribution."""

from __future__ import annotations

import itertools

import pytest

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
