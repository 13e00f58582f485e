"""The default method: by turns or side by side, as measured."""

from __future__ import annotations

import copy
import multiprocessing
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tiny
from sooner import generate
from sooner.methods import ParallelVLM, Speculative
from sooner.methods.experience import PRIOR, Acceptance
from sooner.tasks import choice, registry
from sooner.tasks.caption import caption
from sooner.tasks.choice import MARGIN, StepTimes, Way, by_turns, choose, measure, parallel_speedup
from sooner.tasks.clip import prepare
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.registry import Noted, build_method
from sooner.tasks.settings import CaptionSettings

SETTINGS = CaptionSettings(max_new_tokens=8)
FREE = StepTimes(0.0083, 0.011, 0.0015, 0.0015, 0.0083, 0.0015)
"""A deep target and a shallow draft, each with a core of its own."""
CROWDED = replace(FREE, target_parallel=0.016, draft_parallel=0.003)
"""The pace on one core."""
LONG = StepTimes(0.42, 0.43, 0.078, 0.047, 0.42, 0.078)
"""LLaVA-OV 7B and 72B behind 25,000 visual tokens (the paper's table 3)."""


@pytest.fixture(scope="module")
def pair(target_folder: Path, draft_folder: Path) -> ModelPair:
    return load_pair(str(target_folder), str(draft_folder))


def build(
    pair: ModelPair, clip: Path, pace: StepTimes, monkeypatch: pytest.MonkeyPatch, **options: object
) -> Noted:
    settings = replace(SETTINGS, **options)
    monkeypatch.setattr(registry, "measure", lambda *_: pace)
    fresh = replace(pair)
    inputs = prepare(clip, fresh, settings).draft_inputs
    method = build_method(settings, fresh, inputs)
    assert isinstance(method, Noted)
    return method


def gain(pace: StepTimes, acceptance: float = PRIOR) -> float:
    """Speed of drafting beside the target over that of drafting by turns."""
    return parallel_speedup(pace, acceptance) / by_turns(pace, acceptance)


def test_a_draft_with_a_spare_core_runs_in_parallel() -> None:
    assert gain(FREE) > MARGIN
    assert gain(LONG) > MARGIN


def test_models_that_slow_each_other_down_take_turns() -> None:
    assert gain(CROWDED) < 0.8


def test_a_draft_as_slow_as_its_target_takes_turns() -> None:
    assert gain(StepTimes(0.01, 0.012, 0.01, 0.01, 0.01, 0.01)) < 1.3
    assert gain(StepTimes(0.01, 0.012, 0.01, 0.01, 0.02, 0.02)) < MARGIN


# What earlier files showed ----------------------------------------------------------------------


def acceptance_of(rate: float, tokens: int = 200) -> Acceptance:
    """What `tokens` judged draft tokens teach."""
    made = Acceptance()
    made.accepted, made.refused = rate * tokens, (1 - rate) * tokens
    return made


def chosen(pace: StepTimes, whole: Acceptance, pruned: Acceptance, **options: bool) -> Way:
    seen = {0.0: whole, 0.9: pruned}
    flags = {"is_open": True, "can_prune": True, **options}
    return choose(pace, seen.__getitem__, 0.9, **flags)[0]


def test_pruning_that_was_tried_and_loses_too_much_is_dropped() -> None:
    assert chosen(LONG, Acceptance(), Acceptance()).prune == 0.9
    assert chosen(LONG, Acceptance(), acceptance_of(0.1)).prune == 0.0
    assert chosen(LONG, acceptance_of(0.9), acceptance_of(0.1)).prune == 0.0


def test_a_draft_that_is_always_wrong_does_not_keep_a_core_busy() -> None:
    assert chosen(FREE, Acceptance(), Acceptance()).is_parallel
    assert not chosen(FREE, acceptance_of(0.0), Acceptance()).is_parallel
    assert not chosen(LONG, acceptance_of(0.0), acceptance_of(0.0)).is_parallel


def test_expectations_name_their_source() -> None:
    assert "0.67 (assumed)" in str(chosen(FREE, Acceptance(), Acceptance()))
    assert "(seen in earlier files)" in str(chosen(FREE, acceptance_of(0.9), Acceptance()))


def test_files_teach_the_files_after_them(
    target_folder: Path, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the models slow each other down a little, only a very good draft is worth it."""
    slower = replace(FREE, target_parallel=1.2 * FREE.target)
    assert gain(slower) < 1 < MARGIN < gain(slower, 0.9)
    monkeypatch.setattr(registry, "measure", lambda *_: slower)
    pair = load_pair(str(target_folder), str(target_folder))  # a draft that is always right
    inputs = prepare(clip, pair, SETTINGS).draft_inputs
    assert by_default(SETTINGS, pair, inputs) is Speculative
    assert pair.draft is not None
    # The paper's pipeline verifies a draft in each round, whatever the clock says.
    seen = registry._seen(SETTINGS, pair, 0.0)
    paper = ParallelVLM(pair.draft.model, prune=0.0, schedule="paper", experience=seen)
    generate(
        pair.target.model, prepare(clip, pair, SETTINGS).inputs, paper,
        max_new_tokens=40, eos_token_id=None,
    )  # fmt: skip
    assert by_default(SETTINGS, pair, inputs) is ParallelVLM
    assert by_default(SETTINGS, replace(pair), inputs) is Speculative
    sampled = replace(SETTINGS, temperature=0.7)  # of which greedy runs say nothing
    assert by_default(sampled, pair, inputs) is Speculative


def by_default(settings: CaptionSettings, pair: ModelPair, inputs: object) -> type:
    method = build_method(settings, pair, inputs)
    assert isinstance(method, Noted)
    return type(method.method)


# The default ------------------------------------------------------------------------------------


def test_the_faster_way_is_chosen(
    pair: ModelPair, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(build(pair, clip, FREE, monkeypatch).method, ParallelVLM)
    assert isinstance(build(pair, clip, CROWDED, monkeypatch).method, Speculative)


@pytest.mark.parametrize("pace", [FREE, CROWDED], ids=["beside", "by turns"])
def test_the_record_explains_the_choice(
    pair: ModelPair, clip: Path, monkeypatch: pytest.MonkeyPatch, pace: StepTimes
) -> None:
    monkeypatch.setattr(registry, "measure", lambda *_: pace)
    record = caption(clip, replace(pair), SETTINGS)
    assert any("by default" in note for note in record["decisions"])
    plain = caption(clip, replace(pair), replace(SETTINGS, method="plain"))
    assert record["text"] == plain["text"]


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl"])
@pytest.mark.parametrize("placement", ["process", "thread"])
def test_measuring_leaves_no_process_or_thread(family: str, placement: str) -> None:
    models, threads = (tiny.model(family), tiny.noisy(family)), set(threading.enumerate())
    children = set(multiprocessing.active_children())  # standing drafts of pairs that still live
    pace = measure(*models, 100, 0.9, placement)
    times = (
        pace.target,
        pace.block,
        pace.draft,
        pace.few,
        pace.target_parallel,
        pace.draft_parallel,
    )
    assert all(seconds > 0 for seconds in times)
    assert set(multiprocessing.active_children()) <= children
    assert set(threading.enumerate()) <= threads


def test_a_spawned_draft_on_a_separate_device_slows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shared, so nothing is run at once to be measured."""

    class OnDevice(choice.Steps):
        def __init__(self, model: Any, tokens: int) -> None:
            super().__init__(model, tokens)
            self.adapter = SimpleNamespace(device=torch.device(model.device_of_test))

    models = [copy.copy(tiny.model("llama")), copy.copy(tiny.noisy("llama"))]
    for model, device in zip(models, ("cpu", "cuda:1"), strict=True):
        model.device_of_test = device
    monkeypatch.setattr(choice, "Steps", OnDevice)
    monkeypatch.setattr(choice, "busy", None)
    pace = measure(*models, 60, 0.5, "spawn")
    assert (pace.target_parallel, pace.draft_parallel) == (pace.target, pace.draft)
