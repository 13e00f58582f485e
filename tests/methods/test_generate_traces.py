"""What a run leaves behind in the model and in the process: nothing."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import (
    StoppingCriteria,
    StoppingCriteriaList,
)

import sooner
import tiny
from methods.doors import FAMILY, GREEDY, KIND
from recorders import hook_count
from sooner.registry import method_types


def attributes(model: torch.nn.Module) -> dict[str, Any]:
    """Every plain attribute of every module."""
    skipped = ("_parameters", "_buffers", "_modules")
    return {
        f"{path}.{name}": value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in skipped and not name.endswith("_hooks")
    }


@pytest.fixture
def guest() -> Iterator[Any]:
    model = copy.deepcopy(tiny.model(FAMILY))
    before = hook_count(model)
    yield model
    assert hook_count(model) == before


class StumbleError(Exception):
    pass


class Stumble(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        raise StumbleError


def test_hooks_are_gone_after_success_and_after_an_error(guest: Any) -> None:
    inputs, method = tiny.inputs(FAMILY, KIND), sooner.Speculative(guest, num_draft_tokens=2)
    sooner.generate(guest, inputs, method, **GREEDY)
    assert hook_count(guest) == hook_count(tiny.model(FAMILY))
    with pytest.raises(StumbleError):
        sooner.generate(guest, inputs, method, **GREEDY,
                        stopping_criteria=StoppingCriteriaList([Stumble()]))  # fmt: skip
    assert hook_count(guest) == hook_count(tiny.model(FAMILY))
    broken = {**inputs, "pixel_values_videos": inputs["pixel_values_videos"][:5]}
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever the vision tower says)
        sooner.generate(guest, broken, method, **GREEDY)
    assert hook_count(guest) == hook_count(tiny.model(FAMILY))


def test_the_model_is_as_before_afterwards(guest: Any) -> None:
    """All but the offset that HF's own `generate` leaves behind in the same place."""
    inputs = tiny.inputs(FAMILY, KIND, 2)
    guest.generate(**inputs, **GREEDY)
    before, weights = attributes(guest), copy.deepcopy(guest.state_dict())
    training = guest.training
    sooner.generate(guest, inputs, sooner.Speculative(guest, num_draft_tokens=2), **GREEDY)
    after = attributes(guest)
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] is not before[name]}
    assert {name for name in changed if not name.endswith("rope_deltas")} == set()
    assert guest.training == training
    assert all(torch.equal(weights[name], value) for name, value in guest.state_dict().items())


def test_two_threads_decode_with_a_shared_model_at_once() -> None:
    jobs = [("text", 1), ("image", 2), ("mixed", 1), ("video", 3)]
    method = sooner.Speculative(tiny.noisy("llava_onevision"), num_draft_tokens=3)
    model = tiny.model("llava_onevision")

    def decode_job(kind: str, rows: int) -> list[list[int]]:
        inputs = tiny.inputs("llava_onevision", kind, rows)
        return sooner.generate(model, inputs, method, **GREEDY).sequences.tolist()

    expected = [decode_job(*job) for job in jobs]
    results: list[Any] = [None] * len(jobs)

    def work(place: int) -> None:
        results[place] = [decode_job(*jobs[place]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[output] * 3 for output in expected]


def test_every_public_name_is_there() -> None:
    for name in sooner.__all__:
        assert getattr(sooner, name) is not None
    assert set(method_types()) <= set(sooner.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Speculativ'"):
        _ = sooner.Speculativ
