"""The default method: beside the target where the draft has a core of its own, else by turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sooner.methods import ParallelVLM, PromptLookup, Speculative
from sooner.tasks import registry
from sooner.tasks.clip import prepare
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.registry import build_method, method_name
from sooner.tasks.settings import CaptionSettings

SETTINGS = CaptionSettings(max_new_tokens=8)


@pytest.fixture(scope="module")
def pair(target_folder: Path, draft_folder: Path) -> ModelPair:
    return load_pair(str(target_folder), str(draft_folder))


@pytest.fixture(params=["process", "spawn"])
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "place", lambda *_: request.param)


@pytest.mark.usefixtures("beside")
def test_a_draft_with_a_core_or_device_of_its_own_works_beside_the_target(
    pair: ModelPair, clip: Path
) -> None:
    inputs = prepare(clip, pair, SETTINGS).draft_inputs
    method = build_method(SETTINGS, pair, inputs)
    assert isinstance(method, ParallelVLM)
    assert (method.prune, method.num_draft_tokens) == (ParallelVLM.prune, "auto")
    chunked = build_method(replace(SETTINGS, prefill_chunk=16), pair, inputs)
    assert isinstance(chunked, ParallelVLM)
    assert chunked.prune == ParallelVLM.prune


@pytest.mark.usefixtures("beside")
def test_other_drafts_and_fixed_lengths_take_turns(pair: ModelPair) -> None:
    assert pair.draft is not None
    reads = replace(pair, draft=replace(pair.draft, is_text=True))
    assert method_name(SETTINGS, reads) == "speculative"
    assert method_name(replace(SETTINGS, num_draft_tokens=4), pair) == "speculative"
    assert method_name(replace(SETTINGS, method="sd-tree"), pair) == "sd-tree"
    assert method_name(SETTINGS, replace(pair, draft=None)) == "prompt-lookup"


def test_without_a_core_for_the_draft_it_takes_turns(
    pair: ModelPair, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "place", lambda *_: "thread")
    inputs = prepare(clip, pair, SETTINGS).draft_inputs
    assert isinstance(build_method(SETTINGS, pair, inputs), Speculative)
    alone = build_method(SETTINGS, replace(pair, draft=None))
    assert isinstance(alone, PromptLookup)
