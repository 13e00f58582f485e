"""What candidates cost on the device, and the length from which patterns are faster."""

from __future__ import annotations

import pytest
import torch

import tiny
from sooner.models import adapt
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape, Grid
from sooner.sparse.search import Search, SearchSample, SearchSettings
from sooner.sparse.search import run as price
from sooner.sparse.search.heads import shortlist
from sooner.sparse.search.score import WHOLE, Survey, Tally
from sooner.sparse.table import HeadEntry

ADAPTER = adapt(tiny.model("llama"))


def test_a_candidate_is_dropped_when_its_kernel_is_too_slow() -> None:
    pairs = torch.tensor([[0.3], [0.2]]).double() * 100
    error = torch.tensor([[0.1], [0.4]]).double()
    survey = Survey({WHOLE: Tally(error**2, pairs, pairs)}, torch.ones(1).double(), 10.0, 100.0)
    candidates = [Grid(), AShape()]
    for factor, chosen in ((1.0, "grid"), (2.0, "a-shape")):
        prices = torch.tensor([factor, 1.0]).double()
        types = shortlist(survey, candidates, prices, 0.4, SearchSettings())
        assert types[0][0].name == chosen


def test_break_even_lies_between_the_lengths_that_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(price, "SHORTEST", 128)
    monkeypatch.setattr(price, "LONGEST", 256)
    layers = [[HeadEntry(AShape(4, 64), cost=0.2)] * 4] * 3
    tokens, how = price.break_even(ADAPTER, layers, PromptLayout.text(200))
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
