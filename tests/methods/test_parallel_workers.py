"""Draft workers that are killed, stopped, slow or broken: same ids, and no process left."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from methods.children import children
from methods.parallel_runs import NEW, generate
from sooner.methods.parallel.worker import Worker

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_crashing_draft_is_reported_once(
    placement: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(self: Any) -> Any:
        raise MemoryError("no room for the draft")

    monkeypatch.setattr("sooner.methods.parallel.server.DraftServer.draft", crash)
    made = generate("qwen2_5_vl", "image", 2, placement=placement)
    assert torch.equal(made.sequences, matrix.reference("qwen2_5_vl", "image", 2, NEW))
    warnings = [record for record in caplog.records if "worker is gone" in record.getMessage()]
    assert len(warnings) == 1
    assert "no room for the draft" in warnings[0].getMessage()


def test_an_interrupted_run_leaves_nothing(launched: list[Worker]) -> None:
    def interrupt(row: int, tokens: list[int], drafted: int) -> None:
        raise KeyboardInterrupt

    model = tiny.model("llava_onevision")
    layers = model.get_decoder().layers
    before = [len(layer._forward_hooks) for layer in layers]  # HF's own, if states were asked for
    method = sooner.ParallelVLM(tiny.noisy("llava_onevision"), min_visual=0, placement="process")
    with pytest.raises(KeyboardInterrupt):
        sooner.generate(
            model,
            tiny.inputs("llava_onevision", "video"),
            method,
            max_new_tokens=NEW,
            on_tokens=interrupt,
        )
    assert launched
    launched.clear()  # workers hold the process of the method
    del method
    gc.collect()
    assert not children()
    assert [len(layer._forward_hooks) for layer in layers] == before


def test_a_failing_prompt_leaves_nothing(launched: list[Worker]) -> None:
    """An error between the worker's start and the loop must not strand the worker."""
    inputs = tiny.inputs("llava_onevision", "video")
    inputs["pixel_values_videos"] = inputs["pixel_values_videos"][:, :2]
    method = sooner.ParallelVLM(tiny.noisy("llava_onevision"), min_visual=0, placement="process")
    with pytest.raises(sooner.SoonerError, match="do not match"):
        sooner.generate(tiny.model("llava_onevision"), inputs, method, max_new_tokens=4)
    launched.clear()  # workers hold the process of the method
    del method
    gc.collect()
    assert not children()
