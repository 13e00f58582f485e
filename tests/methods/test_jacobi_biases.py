"""Mistakes that are easily made in Jacobi decoding are seen by the distribution tests.

Were one of these biases not seen, `test_jacobi_distributions` would prove nothing. The table and
the numbers of samples are those with which correct decoding passes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fake_models import FakeAdapter, adapt_fakes, generate_ids
from fakes import ERROR, Table, chi_square
from sooner import CoupledJacobi
from sooner.engine.acceptance import VerifyResult, residual
from sooner.engine.noise import Purpose, RowNoise, first_to_come
from sooner.engine.sampling import pick
from sooner.methods.jacobi import couplings, method, window
from sooner.methods.jacobi.couplings import Draws
from sooner.methods.jacobi.window import JacobiWindow, at_random, copied, like_last
from sooner.methods.speculative import reject

pytestmark = pytest.mark.slow

LENGTH, SAMPLES, MANY = 4, 8000, 60_000
TARGET = Table(3, LENGTH, seed=1)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


def p_value(samples: int = SAMPLES, rule: Any = None, **options: Any) -> float:
    method = CoupledJacobi(3, verify="ratio", **options)
    output_ids = generate_ids(method, FakeAdapter(TARGET), samples, LENGTH, rule=rule)
    return chi_square(output_ids, TARGET.joint())


@pytest.mark.parametrize("coupling", ["maximal", "gumbel"])
def test_without_a_mistake_many_samples_pass_too(coupling: str) -> None:
    assert p_value(MANY, coupling=coupling) > ERROR


def test_keeping_the_stale_distribution_behind_a_rejection_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A redrawn token follows `p`, not the `q` that the token before it was drawn from."""
    seen = {}

    def draw(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
        seen["q"] = q
        return couplings.maximal(p, q, x, draws)

    def fill(view: JacobiWindow) -> tuple[Tensor, Tensor]:
        tokens, probs = like_last(view)
        if "q" not in seen:
            return tokens, probs
        q = seen.pop("q")
        q = torch.cat([q, probs.new_zeros(len(q), probs.shape[1] - q.shape[1], q.shape[2])], 1)
        drafted = ~view.unfilled()[..., None] & (q.sum(-1, keepdim=True) > 0.5)
        return tokens, torch.where(drafted, q, probs)

    monkeypatch.setitem(method.COUPLINGS, "maximal", draw)
    monkeypatch.setitem(method.FILLINGS, "last", fill)
    assert p_value(MANY, coupling="maximal") < ERROR


def test_leaving_a_draft_as_it_was_and_calling_it_new_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(method.COUPLINGS, "maximal", lambda p, q, x, draws: x)
    assert p_value(coupling="maximal") < ERROR


def test_one_uniform_a_place_for_verifying_and_for_redrawing_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token kept because its number was small is not a draw from `p` given that number."""

    def draw(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
        mine = draws.noise.uniforms(Purpose.ACCEPT, draws.ahead)
        index = x[..., None]
        stays = mine * q.gather(-1, index)[..., 0] < p.gather(-1, index)[..., 0]
        return torch.where(stays, x, pick(residual(p, q), draws.uniforms(Purpose.REPLACE)))

    monkeypatch.setitem(method.COUPLINGS, "maximal", draw)
    assert p_value(MANY // 2, coupling="maximal") < ERROR


def test_shared_noise_for_the_token_behind_a_rejection_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The noise of the place already chose the draft that was just refused."""

    def verify(tree: Any, scores: Tensor, processing: Any, noise: RowNoise) -> VerifyResult:
        verdict = reject(tree, scores, processing, noise)
        if tree.probs is None:
            return verdict
        here, last = torch.arange(tree.rows), verdict.accepted
        left = residual(processing.probabilities(scores)[here, last], tree.probs[here, last])
        waits = noise.waiting(Purpose.GUMBEL, last[:, None], 3)
        again = first_to_come(left[:, None], waits)[:, 0]
        broken = last < tree.sizes
        return replace(verdict, bonus=torch.where(broken, again, verdict.bonus))

    assert p_value(MANY, rule=verify) < ERROR


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


def test_a_copy_that_claims_to_have_been_drawn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(view: JacobiWindow) -> tuple[Tensor, Tensor]:
        return copied(view, window._left)[0], at_random(view)[1]

    monkeypatch.setitem(method.FILLINGS, "left", fill)
    assert p_value(init="left") < ERROR
