"""The search of patterns: capture, space, scores, choices, prices, and whole searches."""

from __future__ import annotations

from functools import cache

import pytest
import torch

import tiny
from sooner.errors import SoonerError
from sooner.models import adapt
from sooner.sparse.attention import Reference, States, sparse_attention
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import (
    AShape,
    Dense,
    Grid,
    HeadPattern,
    QBoundary,
    TwoDBoundary,
    VerticalSlash,
)
from sooner.sparse.plane import whole
from sooner.sparse.search import Search, SearchSample, SearchSettings
from sooner.sparse.search import run as price
from sooner.sparse.search.heads import alone, decide, shortlist
from sooner.sparse.search.run import capture
from sooner.sparse.search.score import WHOLE, Survey, survey, trial
from sooner.sparse.search.space import FLAGS, PAPER_TOKENS, Space
from sooner.sparse.table import PatternTable
from sparse_attention.contexts import mask_of

LAYOUT = PromptLayout.spans(
    ("text", 20), ("video", 96), ("text", 31), ("video", 64), ("text", 40), frame=16
)


def states(layout: PromptLayout = LAYOUT, heads: int = 4, kv_heads: int = 2) -> States:
    generator = torch.Generator().manual_seed(3)

    def draw(count: int) -> torch.Tensor:
        return torch.randn(count, len(layout), 16, generator=generator)

    return States(draw(heads), draw(kv_heads), draw(kv_heads), 0.5)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_captured_states_give_the_layer_s_attention(family: str) -> None:
    adapter = adapt(tiny.model(family))
    kind = "text" if family in tiny.TEXT_FAMILIES else "video"
    with torch.inference_mode():
        prompt = adapter.embed_prompt(tiny.inputs(family, kind))
    outputs: dict[int, torch.Tensor] = {}

    def keep(number: int, projection: torch.nn.Module) -> object:
        return projection.register_forward_pre_hook(
            lambda module, args: outputs.__setitem__(number, args[0])
        )

    handles = [
        keep(number, layer.self_attn.o_proj) for number, layer in enumerate(adapter.decoder.layers)
    ]
    captured: dict[int, States] = {}
    capture(adapter, prompt, captured.__setitem__)
    for handle in handles:
        handle.remove()  # type: ignore[attr-defined]
    assert sorted(captured) == list(range(adapter.layers))
    for number, row in captured.items():
        assert row.keys.shape[0] == tiny.TEXT["num_key_value_heads"]
        layout = PromptLayout.text(row.queries.shape[1])
        made = sparse_attention(row, layout, [Dense()] * len(row.queries), Reference())
        joined = made.output.transpose(0, 1).flatten(1)
        torch.testing.assert_close(joined, outputs[number][0], rtol=1e-4, atol=1e-4)


def test_capture_names_attention_that_it_can_not_record() -> None:
    adapter = adapt(tiny.eager("qwen2"))
    with torch.inference_mode():
        prompt = adapter.embed_prompt(tiny.inputs("qwen2"))
    with pytest.raises(SoonerError, match="sdpa"):
        capture(adapter, prompt, lambda number, row: None)


def test_the_space_holds_table_3_at_the_paper_s_length() -> None:
    patterns = set(Space(PAPER_TOKENS).patterns)
    table = {Grid(s, hline=h, vline=v, slash=d) for s in ("frame", "auto") for h, v, d in FLAGS}
    table |= {AShape(128, local) for local in (1024, 2048, 4096)}
    sizes = [
        (1000, 1024), (1000, 2048), (2000, 2048), (1000, 3096), (2000, 3096), (1000, 4096),
        (2000, 4096), (3500, 200), (1000, 2500),
    ]  # fmt: skip
    assert patterns > table | {VerticalSlash(*size) for size in sizes} | {Dense()}


@pytest.mark.parametrize(
    "pattern",
    [
        Dense(),
        VerticalSlash(9, 80),
        QBoundary({"video": Grid("frame"), "text": AShape(4, 64)}),
        TwoDBoundary({"video:video": Grid(16), "text:video": VerticalSlash(6, 64)}),
    ],
    ids=str,
)
def test_a_trial_of_all_queries_is_the_error_of_sparse_attention(pattern: HeadPattern) -> None:
    row = states()
    outcome = trial(row, LAYOUT, [pattern] * 4, len(LAYOUT))
    dense = sparse_attention(row, LAYOUT, [Dense()] * 4, Reference())
    made = sparse_attention(row, LAYOUT, [pattern] * 4, Reference())
    error = (made.output - dense.output).flatten(1).norm(dim=1) / dense.output.flatten(1).norm(
        dim=1
    )
    recall = (made.lse - dense.lse).exp().mean(1)
    masks = [
        mask_of(pattern, LAYOUT, row.queries[h], row.keys[h // 2], row.scale) for h in range(4)
    ]
    cost = torch.stack([mask.sum() for mask in masks]) / whole(LAYOUT).pairs
    expected = torch.stack([error, recall, cost])
    torch.testing.assert_close(outcome.figures.float(), expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(outcome.figures[2].float(), cost, rtol=1e-5, atol=1e-6)


def test_equal_errors_go_to_the_cheaper_and_none_exceeds_the_budget() -> None:
    error = torch.tensor([[0.0], [0.0100], [0.0101], [0.5]]).double()
    cost = torch.tensor([[1.0], [0.3], [0.1], [0.01]]).double()
    assert alone(error, cost, 0.4).tolist() == [2]
    assert alone(error, cost, 1.0).tolist() == [0]
    assert alone(error, cost, 0.001).tolist() == [3]


@pytest.mark.parametrize(("last", "is_seen"), [(64, True), (0, False)])
def test_a_head_that_looks_back_for_the_answer_alone_keeps_its_look(
    last: int, is_seen: bool
) -> None:
    """A mean over the prompt does not notice what the last query loses of a far sentence."""
    tokens, fact, layout = 2048, 500, PromptLayout.text(2048)
    where = torch.arange(tokens) / 1000
    wave = torch.stack([where.cos(), where.sin()], 1) * 60  # near tokens are alike
    keys = torch.zeros(1, tokens, 8)
    keys[0, :, :2], keys[0, fact, 2] = wave, 99.0
    queries = keys.clone()
    queries[0, :, 2] = 0.0
    queries[0, -1] = keys[0, fact]
    values = torch.randn(1, tokens, 8, generator=torch.Generator().manual_seed(0))
    row, candidates = States(queries, keys, values, 0.5), [AShape(4, 200), AShape(4, 200, 64)]
    scores = survey(row, layout, candidates, 64, last)
    (pattern,) = shortlist(scores, candidates, torch.ones(2).double(), 0.3, SearchSettings())[0]
    mask = mask_of(pattern, layout, row.queries[0], row.keys[0], row.scale)
    assert bool(mask[-1, fact]) == is_seen


def _trial(error: float, cost: float) -> Survey:
    sums = torch.tensor([[error**2], [0.9], [cost], [0.0]]).double()
    return Survey({WHOLE: sums}, torch.ones(1).double(), 1.0, 1.0)


@pytest.mark.parametrize(
    ("errors", "costs", "chosen"),
    [
        ((0.10, 0.09, 0.08), (0.3, 0.3, 0.3), "grid"),
        ((0.60, 0.05, 0.04), (0.3, 0.3, 0.3), "q-boundary"),
        ((0.60, 0.40, 0.02), (0.3, 0.3, 0.3), "2d-boundary"),
        ((0.10, 0.10, 0.10), (0.3, 0.1, 0.1), "q-boundary"),
        ((0.90, 0.80, 0.70), (0.3, 0.3, 0.3), "dense"),
    ],
)
def test_the_simplest_type_that_no_other_clearly_beats_is_chosen(
    errors: tuple[float, ...], costs: tuple[float, ...], chosen: str
) -> None:
    types = [[Grid()], [QBoundary()], [TwoDBoundary()]]
    trials = [_trial(*pair) for pair in zip(errors, costs, strict=True)]
    patterns, scores = decide(types, trials, SearchSettings())
    assert patterns[0].name == chosen
    assert (scores[:, 0].tolist() == [0.0, 1.0, 1.0]) == (chosen == "dense")


@cache
def searched(family: str) -> PatternTable:
    return search(family).run()


def search(family: str, **options: object) -> Search:
    adapter = adapt(tiny.model(family))
    kind = "text" if family in tiny.TEXT_FAMILIES else "video"
    with torch.inference_mode():
        prompt = adapter.embed_prompt(tiny.inputs(family, kind))
    samples = [
        SearchSample(lambda: prompt, PromptLayout.of(prompt, 0), f"{name}" * 64) for name in "ab"
    ]
    settings = SearchSettings(queries=16, break_even=False)
    return Search(adapter, samples, settings, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["llama", "llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_a_search_gives_every_head_a_pattern_with_figures(family: str) -> None:
    table, adapter = searched(family), adapt(tiny.model(family))
    table.check(adapter)
    for head in (head for layer in table.layers for head in layer):
        assert head.score is not None
        assert head.recall is not None
        assert head.cost is not None
        assert 0 <= head.recall <= 1 + 1e-6
        assert 0 < head.cost <= 1 + 1e-6
    assert table.samples == ("a" * 64, "b" * 64)


def test_an_interrupted_search_goes_on_where_it_was(tmp_path: object) -> None:
    file = tmp_path / "kept"  # type: ignore[operator]
    steps: list[tuple[str, int, int]] = []

    def stop(*step: object) -> None:
        steps.append(step)  # type: ignore[arg-type]
        if len(steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search("qwen2_5_vl", sidecar=file, on_step=stop).run()
    again = search("qwen2_5_vl", sidecar=file)
    assert len(again.notes.entries) == 4
    assert again.run() == searched("qwen2_5_vl")
    again.notes.remove()
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.0}, "budget is 0; it must be above 0 and at most 1"),
        ({"min_recall": 2}, "min_recall is 2; it must lie in 0 to 1"),
        ({"queries": 0}, "queries is 0; it must be a whole number of 1 or more"),
        ({"cost": "flop"}, "did you mean 'flops'"),
    ],
)
def test_bad_settings_are_named(options: dict, message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        SearchSettings(**options)


ADAPTER = adapt(tiny.model("llama"))


def test_a_candidate_is_dropped_when_its_kernel_is_too_slow() -> None:
    pairs = torch.tensor([[0.3], [0.2]]).double() * 100
    error = torch.tensor([[0.1], [0.4]]).double()
    sums = torch.stack([error**2, pairs, pairs, torch.zeros_like(error)])
    survey = Survey({WHOLE: sums}, torch.ones(1).double(), 10.0, 100.0)
    candidates = [Grid(), AShape()]
    for factor, chosen in ((1.0, "grid"), (2.0, "a-shape")):
        prices = torch.tensor([factor, 1.0]).double()
        types = shortlist(survey, candidates, prices, 0.4, SearchSettings())
        assert types[0][0].name == chosen


def test_break_even_lies_between_the_lengths_that_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(price, "SHORTEST", 128)
    text = PromptLayout.text(256)
    tokens, how = price.break_even([AShape(4, 64)] * 4, states(text), text)
    assert 128 <= tokens <= 257
    assert "backend fused" in how


def test_a_search_by_time_records_it() -> None:
    with torch.inference_mode():
        prompt = ADAPTER.embed_prompt(tiny.inputs("llama"))
    settings = SearchSettings(queries=8, cost="measured", break_even=False)
    search = Search(ADAPTER, [SearchSample(lambda: prompt, PromptLayout.of(prompt, 0))], settings)
    table = search.run()
    assert table.about["cost"] == "measured"
    assert bool((search.prices > 0).all())
