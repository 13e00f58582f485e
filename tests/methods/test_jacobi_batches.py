"""Ragged rows, reruns, and what of them is guaranteed."""

from __future__ import annotations

from typing import Any

import pytest

from fake_models import FakeAdapter, adapt_fakes, generate_with_stats
from fakes import Markov
from sooner import CoupledJacobi
from sooner.methods.jacobi.drafter import JacobiDrafter

IMAGE = Markov(8, seed=3)


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


def accepted(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Filled, round by round, with the number of drafts that each row accepted."""
    rounds: list[list[int]] = []
    propose = JacobiDrafter.propose

    def spy(drafter: JacobiDrafter, outcome: Any) -> Any:
        rounds.append(list(outcome.accepted))
        return propose(drafter, outcome)

    monkeypatch.setattr(JacobiDrafter, "propose", spy)
    return rounds


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("coupling", ["maximal", "gumbel"])
def test_rows_of_a_round_accept_different_numbers(
    coupling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No minimum over the batch: eight rows together need no more rounds than the slowest."""
    rounds = accepted(monkeypatch)
    _, stats = generate_with_stats(CoupledJacobi(8, coupling), FakeAdapter(IMAGE), 8, 40)
    full = [line for line in rounds[1:] if len(line) == 8]
    assert sum(len(set(line)) > 1 for line in full) > 0.8 * len(full)
    assert stats.num_spec_steps < 8 * (stats.nfe - 1), "faster rows end sooner"
    smallest = sum(1 + min(line) for line in full)
    assert smallest < 40 * 0.8, "with the minimum these rounds would have said this much"
