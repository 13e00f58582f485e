"""Costs of sparse attention, and `MMInference.auto`: sparse where it is faster, dense elsewhere."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

import sooner
import tiny
from sooner import MMInference
from sooner.models import adapt
from sooner.sparse import tables
from sooner.sparse.attention.fused import Fused
from sooner.sparse.cost import break_even, measure, random_states
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape, BlockTopP, VerticalSlash
from sooner.sparse.prefill import context, forward_context
from sooner.sparse.prefill.report import PrefillReport
from sooner.sparse.search import Search, SearchSample
from sooner.sparse.table import PatternTable
from sparse_attention.contexts import prompt_of

LONG = 4096


def local_model(layers: int = 4) -> Any:
    """A model whose heads look at near tokens only, through the biases of their rotated states."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=96, hidden_size=256, intermediate_size=64, num_attention_heads=2,
        num_key_value_heads=1, num_hidden_layers=layers, max_position_embeddings=LONG + 64,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    for layer in model.model.layers:
        for part in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            nn.init.normal_(part.weight, std=0.01)
            # The middle of the rotary frequencies: scores fall from the own key on, and smoothly.
            bias = torch.zeros(part.bias.shape).view(-1, 2, 64)
            bias[..., 16:32] = 2.5
            part.bias.data = bias.flatten()
    return model


def notes_of(model: Any, tokens: int, **options: Any) -> PrefillReport:
    """What a prompt of so many random words is told by `auto`."""
    ids = torch.randint(0, 90, (1, tokens), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode(), MMInference.auto(**options)(model) as report:
        model(input_ids=ids)
    assert report.last is not None
    return report.last


@pytest.fixture(params=[0.1, 2.0], ids=["faster", "slower"])
def seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds of each sparse layer on a made-up clock; the dense one before them takes 1."""
    times = itertools.chain([1.0], itertools.repeat(request.param))
    monkeypatch.setattr(forward_context, "clock", lambda run, device: (next(times), run()))
    return float(request.param)


def test_auto_goes_sparse_where_lines_hold_a_small_part_and_are_faster(seconds: float) -> None:
    notes = notes_of(local_model(), LONG, measure_recall=True)
    assert [layer.is_sparse for layer in notes.layers] == [False, *[seconds < 1] * 3]
    if seconds > 1:
        assert "took 1 s dense, 2 s sparse" in notes.layers[1].reason
        return
    assert notes.recall is not None
    assert notes.recall > 0.9
    assert notes.layers[1].share is not None
    assert notes.layers[1].share < 0.25


def test_auto_keeps_what_is_short_and_what_has_no_lines_dense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward_context, "clock", lambda run, device: (1.0, run()))
    short = notes_of(local_model(), 500)
    assert short.is_exact
    assert all("500 tokens, sparse from 1024 on" in layer.reason for layer in short.layers)
    model = tiny.model("llama", layers=4)  # random attention: its lines would be anywhere
    spread = notes_of(model, 2048)
    assert spread.is_exact
    assert re.search(r"of dense attention's FLOPs|s dense, ", spread.layers[0].reason)


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model's file in an empty cache folder; no table is shipped for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tables.cached_path(adapt(local_model()))


def test_auto_takes_the_table_of_this_machine_and_its_break_even(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.chain([1.0], itertools.repeat(0.1))
    monkeypatch.setattr(forward_context, "clock", lambda run, device: (next(times), run()))
    model = local_model()
    table = PatternTable.uniform(adapt(model), AShape(4, 64), dense_below=300)
    table.save(cached)
    notes = notes_of(model, 400)
    assert [layer.is_sparse for layer in notes.layers] == [False, True, True, True]
    assert notes.source == "searched on this machine"
    assert 0.25 < notes.flops_share < 0.75
    assert notes_of(model, 299).is_exact
    monkeypatch.setattr(tables, "SHIPPED", cached.parent / "shipped")
    replace(table, dense_below=500).save(tables.SHIPPED / cached.name)
    assert notes_of(model, 400).source == "searched on this machine"
    cached.unlink()
    shipped = notes_of(model, 400)
    assert shipped.is_exact
    assert shipped.source == "shipped with sooner"


@pytest.mark.parametrize("text", ["{", '{"kind": "other"}', "foreign"])
def test_a_cached_file_of_no_use_is_ignored_with_a_single_warning(
    cached: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    tables._warn.cache_clear()
    cached.parent.mkdir(parents=True)
    cached.write_text(text)
    if text == "foreign":
        PatternTable.uniform(adapt(tiny.model("llama")), AShape(4, 64)).save(cached)
    for _ in range(2):
        notes = notes_of(local_model(), 200)
        assert notes.source == "defaults, nothing was searched"
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [str(cached) in text and text.endswith("it is ignored") for text in warnings] == [True]


@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl"])
def test_a_table_is_searched_on_the_first_long_prompt_and_saved(
    cached: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By HF's own `generate`, and by the engine."""
    monkeypatch.setattr("sooner.sparse.search.run.break_even", lambda *args: (100, "made up"))
    inputs, model = prompt_of(family), tiny.model(family)
    adapter, auto = adapt(model), MMInference.auto(search=True)
    with torch.inference_mode():
        prompt = adapter.embed_prompt(inputs)
    alone = Search(adapter, [SearchSample(lambda: prompt, PromptLayout.of(prompt, 0))]).run()

    def prefill(inputs: dict[str, Any]) -> PrefillReport:
        with auto(model) as report:
            if family == "llama":
                model.generate(**inputs, max_new_tokens=2, do_sample=False)
            else:
                sooner.generate(model, inputs, max_new_tokens=2)
        assert report.last is not None
        return report.last

    path = tables.cached_path(adapter)
    assert prefill(tiny.inputs(family, "text")).source == "defaults, nothing was searched"
    assert not path.exists()
    monkeypatch.setattr(context, "SEARCH_TOKENS", prompt.width)
    assert prefill(inputs).source == "searched on this machine"
    assert replace(PatternTable.load(path, adapter), samples=()) == replace(alone, samples=())
    monkeypatch.setattr(tables, "Search", None)  # nothing is searched again
    assert prefill(inputs).source == "searched on this machine"


def test_a_search_under_a_pruner_looks_at_the_whole_prompt(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sooner.sparse.search.run.break_even", lambda *args: (100, "made up"))
    monkeypatch.setattr(context, "SEARCH_TOKENS", 64)
    inputs, model = prompt_of("qwen2_5_vl"), tiny.model("qwen2_5_vl")
    path, results = tables.cached_path(adapt(model)), []
    for ratio in (0.5, 0.0):
        with sooner.FastV(ratio, layer=1)(model), MMInference.auto(search=True)(model) as report:
            made = sooner.generate(model, inputs, max_new_tokens=2)
        assert report.last is not None
        assert report.last.source == "searched on this machine"
        assert ("visual tokens" in " ".join(made.stats.notes)) is (ratio > 0)
        results.append(PatternTable.load(path))
        path.unlink()
    assert results[0] == results[1]


def test_defaults_are_blocks_until_their_estimate_would_fill_a_gpu() -> None:
    assert context.default_pattern(4000) == BlockTopP()
    assert context.default_pattern(1 << 17) == BlockTopP(floor=1.25 / 2048)
    assert context.default_pattern(1 << 20) == VerticalSlash(1000, 1024)


def test_auto_takes_prompts_in_chunks_and_leaves_them_dense() -> None:
    model = local_model(2)
    ids = torch.randint(0, 90, (1, 1500), generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": 2, "eos_token_id": None, "prefill_chunk_size": 512}
    made = sooner.generate(model, {"input_ids": ids}, prefill=MMInference.auto(), **options)
    assert made.stats.mode == "exact"


def test_a_sparse_layer_is_timed_against_a_dense_layer() -> None:
    cost = measure(
        [AShape(8, 64)] * 4, random_states(300, 4, 2, 16), PromptLayout.text(300), Fused()
    )
    assert min(cost.seconds, cost.dense) > 0
    assert cost.relative == cost.seconds / cost.dense


@pytest.mark.parametrize("true", [100, 1000, 1100, 5000])
def test_the_break_even_length_is_right_within_an_eighth(true: int) -> None:
    length = break_even(lambda tokens: true / tokens)
    assert length is not None
    assert max(true, 256) <= length <= max(1.125 * true + 64, 256)
