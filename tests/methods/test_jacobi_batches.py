"""Ragged rows, reruns, and what of them is guaranteed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
import tiny_canvas
from fake_models import FakeAdapter, adapt_fakes, say, say_with_stats
from fakes import Markov
from sooner import CoupledJacobi
from sooner.methods.jacobi import Trace
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
def test_rows_of_one_round_accept_different_numbers(
    coupling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No minimum over the batch: eight rows together need no more rounds than the slowest."""
    rounds = accepted(monkeypatch)
    _, stats = say_with_stats(CoupledJacobi(8, coupling), FakeAdapter(IMAGE), 8, 40)
    full = [line for line in rounds[1:] if len(line) == 8]
    assert sum(len(set(line)) > 1 for line in full) > 0.8 * len(full)
    assert stats.num_spec_steps < 8 * (stats.nfe - 1), "faster rows end sooner"
    smallest = sum(1 + min(line) for line in full)
    assert smallest < 40 * 0.8, "with the minimum these rounds would have said this much"


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("coupling", ["independent", "maximal", "gumbel"])
@pytest.mark.parametrize("init", ["last", "random", "left"])
def test_a_seeded_generator_repeats_the_run_and_leaves_the_global_state(
    coupling: str, init: str
) -> None:
    runs = []
    for _ in range(2):
        state = torch.get_rng_state()
        generator = torch.Generator().manual_seed(8)
        method = CoupledJacobi(5, coupling, 0.7, init)
        runs.append(say(method, FakeAdapter(IMAGE), 6, 20, generator=generator))
        assert torch.equal(torch.get_rng_state(), state)
        torch.rand(7)
    assert torch.equal(*runs)


@pytest.mark.usefixtures("_fakes")
def test_other_seeds_and_other_rows_say_other_things() -> None:
    said = [
        say(CoupledJacobi(5), FakeAdapter(IMAGE), 6, 20, generator=torch.Generator().manual_seed(i))
        for i in range(3)
    ]
    assert len(torch.cat(said).unique(dim=0)) == 18


def test_greedy_rows_do_not_depend_on_the_batch() -> None:
    model = tiny.model("qwen2_5_vl")
    inputs = tiny.inputs("qwen2_5_vl", "image", 3)
    expected = matrix.reference("qwen2_5_vl", "image", 3, 17)
    options = {"max_new_tokens": 17, "eos_token_id": None, "do_sample": False}
    said = sooner.generate(model, inputs, CoupledJacobi(6), **options).sequences
    assert said.tolist() == expected.tolist()


def test_copies_of_one_prompt_are_different_pictures() -> None:
    canvas, inputs = tiny_canvas.canvas(), tiny_canvas.prompts(1)
    options = {"count": 4, "seed": 5, "temperature": 9.0}
    first = sooner.draw(canvas, inputs, CoupledJacobi(8), **options)
    again = sooner.draw(canvas, inputs, CoupledJacobi(8), **options)
    assert torch.equal(first.tokens, again.tokens)
    assert len(first.tokens.unique(dim=0)) == 4


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("coupling", ["independent", "maximal", "gumbel"])
def test_a_trace_shows_agreement_as_often_as_the_coupling_says(coupling: str) -> None:
    trace = Trace()
    say(CoupledJacobi(8, coupling, trace=trace), FakeAdapter(IMAGE), 60, 30)
    real = [one.drafted for one in trace.rounds]
    same = torch.cat([(one.old == one.new)[m] for one, m in zip(trace.rounds, real, strict=True)])
    apart = torch.cat([one.distance[m] for one, m in zip(trace.rounds, real, strict=True)])
    chance = torch.cat([one.collision[m] for one, m in zip(trace.rounds, real, strict=True)])
    agree, slack = same.float().mean().item(), 4 * 0.5 / len(same) ** 0.5
    if coupling == "independent":
        assert abs(agree - chance.mean().item()) < slack
    if coupling == "maximal":
        assert abs(agree - (1 - apart).mean().item()) < slack
    if coupling == "gumbel":
        assert ((1 - apart) / (1 + apart)).mean().item() - slack < agree
        assert agree < (1 - apart).mean().item() + slack


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("new", [1, 2, 3, 9])
def test_a_window_longer_than_what_is_left_is_cut(new: int) -> None:
    target = FakeAdapter(IMAGE)
    said = say(CoupledJacobi(64), target, 3, new)
    assert said.shape == (3, new)
    assert all(entries <= new for entries in target.forwards[1:]), "never more than may be said"
