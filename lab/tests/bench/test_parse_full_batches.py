"""The document miniature with many pages under way: each says what it says alone."""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from sooner.tasks.parse import ConcurrentParser, PageParser, ParseSettings, load_parser
from sooner_lab.bench.parse.clients import garbage
from sooner_lab.bench.parse.sheets import oracle, sample_sheets


@pytest.mark.soak
@pytest.mark.parametrize("stages", ["page", "both", "auto"])
def test_batched_pages_of_the_miniature_match_single_pages(stages: str) -> None:
    """In a random order, with drafts that are right, garbage or not there; one page is
    cancelled on the way."""
    pair, rng = load_parser(), np.random.default_rng(5)
    sheets = sample_sheets(8, "exactness", 77)
    drafts: list[Any] = []
    for place, sheet in enumerate(sheets):
        right = oracle(sheet)
        made = (right, garbage(right, rng), None)
        drafts.append(made[place % 3])
    settings = ParseSettings(stages=stages, max_new_tokens=256)
    alone = PageParser(pair, ParseSettings(max_new_tokens=256))
    want = [alone(sheet.page) for sheet in sheets]
    order = random.Random(1).sample(range(8), 8)
    with ConcurrentParser(pair, settings, pages_in_flight=5) as parser:
        futures: dict[int, Future[Any]] = {}
        for place in order:
            futures[place] = parser.submit(sheets[place].page, drafts[place])
        gone = parser.submit(sheets[0].page)
        gone.cancel()
        for place, future in futures.items():
            parsed = future.result(600)
            assert (parsed.raw, parsed.markdown) == (want[place].raw, want[place].markdown)
            assert parsed.mode == "exact"
