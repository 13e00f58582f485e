"""`prefill_chunk_size` changes memory and nothing else, whatever the method."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import method_matrix as matrix
import sooner
import tiny
from methods.doors import refused
from sooner.engine.runner import ModelRunner
from sooner.errors import SoonerError

NEW = 9
METHODS = ("plain", "noisy-4", "prompt-lookup")
GREEDY: dict[str, Any] = {"max_new_tokens": NEW, "eos_token_id": None, "do_sample": False}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["llama", "llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_a_seed_draws_the_same_ids_with_and_without_chunks(family: str, method: str) -> None:
    inputs, decoder = tiny.inputs(family, tiny.kinds(family)[-1], 3), matrix.METHODS[method](family)
    options = {"max_new_tokens": 12, "eos_token_id": None, "do_sample": True, "seed": 3}
    whole = sooner.generate(tiny.model(family), inputs, decoder, **options)
    cut = sooner.generate(tiny.model(family), inputs, decoder, **options, prefill_chunk_size=4)
    assert cut.tokens == whole.tokens


# How the size gets there


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """Every prefill: of which model, in which chunks."""
    seen: list[tuple[str, int | None]] = []
    prefill = ModelRunner.prefill_chunks

    def listen(
        runner: ModelRunner, prompt: Any, chunk: int | None = None, on_states: Any = None
    ) -> Any:
        is_target = runner.adapter.model is tiny.model("llama")
        seen.append(("target" if is_target else "draft", chunk))
        return prefill(runner, prompt, chunk, on_states)

    monkeypatch.setattr(ModelRunner, "prefill_chunks", listen)
    return seen


def test_the_size_may_come_from_the_models_generation_config(chunks: list) -> None:
    model = copy.copy(tiny.model("llama"))
    model.generation_config = copy.deepcopy(model.generation_config)
    model.generation_config.prefill_chunk_size = 4
    inputs = tiny.inputs("llama")
    model.generate(**inputs, **GREEDY, custom_generate=sooner.Autoregressive())
    sooner.generate(model, inputs, **GREEDY)
    sooner.generate(model, inputs, **GREEDY, prefill_chunk_size=2)
    assert [size for _, size in chunks] == [4, 4, 2]


@pytest.mark.parametrize("size", [0, -3, 2.0, "8", True])
def test_a_size_that_is_no_count_is_refused(size: Any) -> None:
    model, inputs = tiny.model("llama"), tiny.inputs("llama")
    options = {**GREEDY, "prefill_chunk_size": size}
    words = f"prefill_chunk_size is {size!r}; it must be a whole number of 1 or more, or None to"
    with refused(SoonerError, words):
        sooner.generate(model, inputs, **options)
    with refused(SoonerError, words):
        model.generate(**inputs, **options, custom_generate=sooner.Autoregressive())
