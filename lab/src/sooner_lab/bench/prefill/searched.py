"""Patterns searched on the states of one attention layer."""

from __future__ import annotations

import torch

from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import HeadPattern
from sooner.sparse.search import SearchSettings
from sooner.sparse.search.heads import decide, shortlist
from sooner.sparse.search.score import survey, trial
from sooner.sparse.search.space import Space

QUERIES = 64
"""Queries of each modality on which candidates are scored."""


def search_states(
    states: States, layout: PromptLayout, budget: float | None = None
) -> list[HeadPattern]:
    """The search's pattern for each head of one layer; dense ones keep their best candidate.

    Args:
        budget: most that a head may cost, as a share of dense attention; the paper's by default.
    """
    settings = SearchSettings(queries=QUERIES, max_error=1e9)
    space = Space(len(layout.where()))
    prices = torch.ones(len(space.patterns), dtype=torch.double)
    target = space.target(layout) if budget is None else budget
    patterns = survey(states, layout, space.patterns, QUERIES)
    types = shortlist(patterns, space.patterns, prices, target, settings)
    trials = [trial(states, layout, kind, QUERIES) for kind in types]
    return decide(types, trials, settings)[0]
