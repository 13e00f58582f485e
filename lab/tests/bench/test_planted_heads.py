"""Heads that were planted, and the duel with a vertical-slash pattern of equal cost."""

from __future__ import annotations

import pytest
import torch

from sooner.errors import SoonerError
from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import Grid, HeadPattern, QBoundary, VerticalSlash
from sooner.sparse.patterns.static import NEAR
from sooner.sparse.plane import whole
from sooner.sparse.search import SearchSettings
from sooner.sparse.search.dense_attention import AskedQueries
from sooner.sparse.search.heads import decide, shortlist
from sooner.sparse.search.score import survey, trial
from sooner.sparse.search.space import Space
from sooner_lab.bench.prefill.compare import FAR, against_vertical_slash, choosing, total_error
from sooner_lab.bench.prefill.planted import KINDS, mixed_layout, planted


@pytest.mark.parametrize("kind", KINDS)
def test_planted_heads_are_found_again(kind: str) -> None:
    heads, layout = 4, mixed_layout(1536, seed=1)
    row = planted(kind, layout, heads, noise=1.0, seed=1)
    space = Space(len(layout))
    settings = SearchSettings(queries=32)
    prices = torch.ones(len(space.patterns)).double()
    found = survey(row, layout, space.patterns, settings.queries)
    types = shortlist(found, space.patterns, prices, space.target(layout), settings)
    trials = [trial(row, layout, one, settings.queries) for one in types]
    patterns, told = decide(types, trials, settings)
    assert [pattern.name for pattern in patterns] == [kind] * heads
    assert bool((told[2] <= space.target(layout) * 1.15).all())


def test_a_searched_boundary_beats_a_vertical_slash_of_equal_flops() -> None:
    layout = mixed_layout(1024, seed=2)
    row = planted("q-boundary", layout, 2, noise=1.0, seed=2, stride=24)
    ours = QBoundary({"video": Grid(), "text": VerticalSlash(60, 66)})
    duel = against_vertical_slash(row, layout, [ours] * 2, queries=32)
    assert duel.our_share <= 0.5
    assert duel.their_share >= 0.99 * duel.our_share
    assert duel.ours < duel.theirs / 2


def test_a_duel_gives_far_lines_and_is_judged_on_queries_that_did_not_choose() -> None:
    layout = mixed_layout(1536, seed=2)
    row = planted("grid", layout, 2, noise=1.0, seed=2, stride=24)
    cheap: list[HeadPattern] = [Grid(24, hline=False, vline=False)] * 2  # below 64 near distances
    duel = against_vertical_slash(row, layout, cheap, queries=32)
    assert duel.rival_far >= FAR
    assert duel.rival.slash == NEAR + duel.rival_far
    exact = Grid(24, 0, hline=False, vline=False).mask(layout).sum() / whole(layout).pairs
    assert duel.our_share == pytest.approx(float(exact))
    used = choosing(row, layout, 32)
    assert set(AskedQueries.of(row, layout, 32).slots.tolist()) < set(used.tolist())
    assert set(layout.where("video")[-64:].tolist()) < set(used.tolist())
    judged = AskedQueries.of(row, layout, 32, without=used)
    assert not set(judged.slots.tolist()) & set(used.tolist())
    assert duel.queries == len(judged.slots)
    assert duel.ours == total_error(trial(row, layout, cheap, 32, without=used))
    assert duel.ours != total_error(trial(row, layout, cheap, 32))


def test_a_prompt_whose_queries_all_chose_has_nobody_left_to_judge() -> None:
    layout = PromptLayout.text(60)
    row = States(*(torch.randn(heads, 60, 16) for heads in (4, 2, 2)), 0.25)
    with pytest.raises(SoonerError, match="all 60 tokens are left out"):
        against_vertical_slash(row, layout, [Grid(8)] * 4, queries=32)
