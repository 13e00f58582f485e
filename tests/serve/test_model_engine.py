"""The engine of a loaded model, asked as the engine's thread asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tiny
from sooner import HSD, Autoregressive, Method, PromptLookup, SDTree, Speculative, generate
from sooner.serve.engine_options import Following, JobOptions, ModelEngine, sampling_options
from sooner.serve.jobs import GenerationJob

PROMPT = [7, 8, 9, 10, 7, 8, 9, 10, 7, 8]
NEW = 24


def inputs(ids: list[int] = PROMPT) -> dict[str, torch.Tensor]:
    tokens = torch.tensor([ids])
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def job(ids: list[int] = PROMPT, **more: Any) -> GenerationJob:
    return GenerationJob("a", inputs(ids), len(ids), more.pop("max_tokens", NEW), **more)


def model() -> Any:
    return tiny.model("qwen2")


def plain(ids: list[int] = PROMPT, **options: Any) -> list[int]:
    arguments = {"max_new_tokens": NEW, "eos_token_id": -1, "do_sample": False, **options}
    return generate(model(), inputs(ids), **arguments).tokens[0]


def run(engine: ModelEngine, *jobs: GenerationJob) -> list[Any]:
    options = JobOptions(engine.method)
    requests = [engine.add_request(job.inputs, seed=job.seed, **options(job)) for job in jobs]
    engine.run()
    for request in requests:
        if request.error is not None:
            raise request.error
    return requests


def test_predictions_are_drafted_from_and_counted() -> None:
    expected = plain()
    engine = ModelEngine(model(), HSD(drafts=[[]], nodes=8), max_rows=4)
    predicted, without = run(engine, job(prediction=expected), job())
    assert predicted.tokens[0] == without.tokens[0] == expected
    assert predicted.num_draft_tokens >= NEW // 2
    assert 0 < predicted.num_drafts < NEW // 2
    assert without.num_draft_tokens == 0


PREDICTED: dict[str, Callable[[], Method]] = {
    "plain": lambda: Following(Autoregressive()),
    "prompt-lookup": lambda: Following(PromptLookup()),
    "speculative": lambda: Following(Speculative(shaken(), num_draft_tokens=5)),
    "sd-tree": lambda: Following(SDTree(shaken())),
}


def shaken() -> Any:
    """A draft that is rarely right."""
    return tiny.model("qwen2", seed=1)


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("drawn", [False, True])
def test_a_prediction_is_the_draft_whatever_the_method(name: str, drawn: bool) -> None:
    sampling = sampling_options(temperature=1.5 if drawn else 0.0)
    [alone] = run(ModelEngine(model()), job(sampling=sampling, seed=3))
    expected = alone.tokens[0]
    assert len(set(expected)) > NEW // 2 or not drawn  # it does not draft itself
    # A wrong token in the middle: what follows is found again.
    guess = [*expected[: NEW // 2], 5, *expected[NEW // 2 + 1 :]]
    engine = ModelEngine(model(), PREDICTED[name](), max_rows=4)
    predicted, other = run(engine, job(prediction=guess, sampling=sampling, seed=3), job())
    assert predicted.tokens[0] == expected
    assert other.tokens[0] == plain()
    assert 0 < predicted.num_drafts < NEW // 2  # rounds
    assert predicted.num_draft_tokens >= NEW // 2
    together = name in ("prompt-lookup", "speculative")
    assert (predicted.first == 0 and other.first == 1) == together


LIMITED = {
    "min_tokens": 6,
    "bad_words": [[token] for token in range(20, 40)],
    "allowed_token_ids": frozenset(range(30, 60)) | {tiny.EOS},
}


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("drawn", [False, True])
def test_limits_on_tokens_hold_under_every_method(name: str, drawn: bool) -> None:
    """Each alone, and the same as HF's own processors give where it has one."""
    base = sampling_options(temperature=1.2 if drawn else 0.0)
    bias = {(tiny.EOS,): 20.0}  # it would end at once
    [early, forbidden, allowed] = run(
        ModelEngine(model(), PREDICTED[name](), max_rows=4),
        job(
            stop_token_ids=frozenset([tiny.EOS]),
            sampling={**base, "sequence_bias": bias, "min_new_tokens": LIMITED["min_tokens"]},
            seed=3,
        ),
        job(sampling={**base, "bad_words_ids": LIMITED["bad_words"]}, seed=3),
        job(sampling=base, allowed_token_ids=LIMITED["allowed_token_ids"], seed=3),
    )
    assert len(early.tokens[0]) == LIMITED["min_tokens"] + 1
    assert early.tokens[0].index(tiny.EOS) == LIMITED["min_tokens"]
    assert early.finish_reason == "stop"
    assert not set(forbidden.tokens[0]) & set(range(20, 40))
    assert set(allowed.tokens[0]) <= LIMITED["allowed_token_ids"]
    if not drawn:
        assert forbidden.tokens[0] == plain(bad_words_ids=LIMITED["bad_words"])
        suppressed = [
            token for token in range(tiny.VOCAB) if token not in LIMITED["allowed_token_ids"]
        ]
        assert allowed.tokens[0] == plain(suppress_tokens=suppressed)
