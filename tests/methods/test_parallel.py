"""Parallel decoding: exact ids on every placement, exact distributions when sampling."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import fake_models
import method_matrix as matrix
import sooner
import tiny
from fake_models import FakeAdapter, generate_ids
from fakes import ERROR, Table, chi_square, row_noise
from methods.parallel_runs import NEW, generate
from sooner.engine.acceptance import Guess, couple, follow_choices
from sooner.engine.loop import run
from sooner.engine.row_sampling import SamplingParams
from sooner.methods import base
from sooner.methods.parallel import standing

PLACEMENTS = ("thread", "process")
SCHEDULES = ("auto", "paper")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    ("family", "kind", "rows"),
    [
        ("llava_onevision", "video", 1),
        ("llava_onevision", "images", 3),
        ("qwen2_5_vl", "video", 2),
        ("qwen2_5_vl", "image", 1),
        ("qwen3_vl", "video", 3),
        ("qwen3_vl", "images", 1),
        ("llama", "text", 2),
    ],
)
def test_ids_equal_hf(family: str, kind: str, rows: int, placement: str, schedule: str) -> None:
    made = generate(family, kind, rows, placement=placement, schedule=schedule, prune=0.5)
    assert torch.equal(made.sequences, matrix.reference(family, kind, rows, NEW))
    assert made.stats.draft_forwards > 0
    assert not made.stats.notes


@pytest.mark.parametrize("window", ["auto", 1, 3, 8])
@pytest.mark.parametrize(("family", "rows"), [("llama", 1), ("qwen2", 3)])
def test_the_papers_pipeline_drawn_from_the_likeliest_equals_hf(
    family: str, rows: int, window: Any
) -> None:
    """Sampled, but of one token each: ids are HF's greedy ones, whatever was drafted."""
    for draft in (tiny.noisy(family), tiny.model(family)):
        method = sooner.ParallelVLM(draft, num_draft_tokens=window, schedule="paper")
        made = sooner.generate(
            tiny.model(family), tiny.inputs(family, "text", rows), method,
            max_new_tokens=NEW, eos_token_id=None, do_sample=True, top_k=1,
        )  # fmt: skip
        assert torch.equal(made.sequences, matrix.reference(family, "text", rows, NEW))
        assert made.stats.num_draft_tokens > 0


def test_the_papers_pipeline_verifies_whole_windows_behind_one_token() -> None:
    """Algorithm 1: a draft that is always right is verified alone once, then by windows."""
    target, sizes, window = tiny.model("llama"), [], 4
    method = sooner.ParallelVLM(target, num_draft_tokens=window, schedule="paper")
    made = sooner.generate(
        target, tiny.inputs("llama", "text"), method, max_new_tokens=41, eos_token_id=None,
        do_sample=False,
        # Slow enough that the draft is always done with what follows.
        on_tokens=lambda row, tokens, drafted: (sizes.append(drafted), time.sleep(0.05)),
    )  # fmt: skip
    assert made.stats.acceptance_rate == 1.0
    assert sizes[:2] == [0, 1]  # the prefill, then the pre-verify
    assert set(sizes[2:-1]) == {window}


# Sampling ---------------------------------------------------------------------------------------


def test_behind_earlier_output_the_draft_draws_and_counts_as_the_target_does() -> None:
    target = tiny.model("llama")
    method = sooner.ParallelVLM(
        target, num_draft_tokens=4, schedule="paper", placement="thread", draws_as_target=True
    )
    params = SamplingParams(max_new_tokens=NEW, do_sample=True, frequency_penalty=1.0)
    session = method.session(target, tiny.inputs("llama", "text", 2), params, generated=7)
    session.rule = follow_choices
    run(session)
    assert session.stats.num_draft_tokens > 0
    assert session.stats.acceptance_rate == 1.0


VOCAB, LENGTH, SAMPLES = 3, 4, 12_000
TARGET = Table(VOCAB, LENGTH, seed=1)
NEAR = Table(VOCAB, LENGTH, seed=2, near=TARGET)


class PrunableFake(FakeAdapter):
    """A fake whose prompt has no pixels to prune."""

    visual_ids = ()


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_models.adapt_fakes(monkeypatch)
    monkeypatch.setattr(standing, "adapt", lambda model: model)
    monkeypatch.setattr(base, "prompt_for", lambda adapter, context: dict(context.inputs))


@pytest.mark.parametrize(
    ("placement", "num_draft_tokens"), [("thread", 1), ("thread", 3), ("process", 3)]
)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.usefixtures("_fakes")
def test_sampling_keeps_the_joint_distribution(
    placement: Any, num_draft_tokens: int, schedule: Any
) -> None:
    method = sooner.ParallelVLM(
        PrunableFake(NEAR), prune=0, num_draft_tokens=num_draft_tokens, placement=placement,
        schedule=schedule,
    )  # fmt: skip
    drawn = generate_ids(method, PrunableFake(TARGET), SAMPLES // 3, LENGTH)
    assert chi_square(drawn, TARGET.joint()) > ERROR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prune": 1.5}, "prune is 1.5"),
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
        ({"layer": 0}, "layer is 0"),
        ({"min_visual": -1}, "min_visual is -1"),
        ({"criterion": "uv-prone"}, "did you mean 'uv-prune'"),
        ({"placement": "proces"}, "did you mean 'process'"),
        ({"schedule": "papers"}, "did you mean 'paper'"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        sooner.ParallelVLM(object(), **options)


@pytest.mark.parametrize("placement", ["process", "thread"])
def test_a_placement_that_contradicts_a_spawned_draft_is_refused(placement: Any) -> None:
    draft = tiny.noisy("llama")
    standing = sooner.StandingDraft(draft, spawn=True)  # not started
    with pytest.raises(sooner.SoonerError, match=f"placement is '{placement}', but standing is a"):
        sooner.ParallelVLM(draft, placement=placement, standing=standing)
    sooner.ParallelVLM(draft, placement="spawn", standing=standing)


@pytest.mark.usefixtures("_fakes")
@pytest.mark.slow
def test_a_guess_taken_for_granted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bias: the worker's next token is said without asking the target."""
    monkeypatch.setattr(
        "sooner.engine.acceptance.couple",
        lambda p, guess, noise, ahead: torch.where(
            guess.known, guess.tokens, torch.multinomial(p, 1)[:, 0]
        ),
    )
    method = sooner.ParallelVLM(PrunableFake(NEAR), prune=0, num_draft_tokens=3, schedule="paper")
    said = generate_ids(method, PrunableFake(TARGET), SAMPLES, LENGTH)
    assert chi_square(said, TARGET.joint()) < ERROR


def test_a_coupled_draw_follows_p() -> None:
    torch.manual_seed(0)
    p, q = torch.tensor([0.1, 0.6, 0.3]), torch.tensor([0.5, 0.2, 0.3])
    rows = 60_000
    guess = Guess(
        torch.multinomial(q.expand(rows, -1), 1)[:, 0],
        q.expand(rows, -1),
        torch.rand(rows) < 0.8,
    )
    ahead = torch.zeros(rows, dtype=torch.long)
    drawn = couple(p.expand(rows, -1), guess, row_noise(rows), ahead)
    assert chi_square(drawn[:, None], {(x,): float(p[x]) for x in range(3)}) > ERROR
    taken = (drawn == guess.tokens)[guess.known].float().mean()
    assert taken > 0.6  # sum of min(p, q); independent draws would agree 0.26 of the time
