"""Many pages at once over one engine: each says what it says alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from sooner.documents import Page, PageDraft
from sooner.engine.loop import Decoding
from sooner.errors import SoonerError
from sooner.tasks.loading import ModelPair
from sooner.tasks.parse import ConcurrentParser, PageParser, ParseSettings
from tasks.parsing import draft_of, noise_page, qwen3_vl

LIMIT = 24
FIXED = {"nodes": 12, "max_new_tokens": LIMIT}
SIZES = [(84, 112), (112, 84), (84, 140), (140, 84), (112, 112), (84, 84)]

Drafts = dict[int, PageDraft | Callable[[], PageDraft | None] | None]


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return qwen3_vl()


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return [noise_page(*size, seed=seed) for seed, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def plain(pair: ModelPair, pages: list[Page]) -> list[Any]:
    """What each page says alone, without a draft."""
    parser = PageParser(pair, ParseSettings(**FIXED))
    return [parser(page) for page in pages]


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each round of decoding."""
    counted: list[int] = []
    real = Decoding.round

    def counting(self: Decoding) -> None:
        counted.append(len(self.rows.active))
        real(self)

    monkeypatch.setattr(Decoding, "round", counting)
    return counted


def drafts_of(pages: list[Page], plain: list[Any]) -> Drafts:
    """Good ones, bad ones, a failed one, none."""
    texts = [result.raw.split(" ") for result in plain]
    return {
        0: draft_of(pages[0], " ".join(texts[0])),
        1: draft_of(pages[1], " ".join(texts[1][:12]), " ".join(texts[1][12:])),
        2: draft_of(pages[2], " ".join(texts[2][::-1]), "w3 w4 w5"),
        3: PageDraft([], reason="no answer", drafter="x"),
        4: None,
        5: draft_of(pages[5], " ".join(texts[5][::2]), " ".join(texts[0])),
    }


def parse_all(parser: ConcurrentParser, *pages: tuple[Page, Any]) -> list[Any]:
    """What each page says, all of them under way at once; what was raised stands in its place."""

    async def run() -> list[Any]:
        coming = [parser.parse(page, draft) for page, draft in pages]
        return await asyncio.wait_for(asyncio.gather(*coming, return_exceptions=True), 60)

    return asyncio.run(run())


@pytest.mark.parametrize("stages", ["page", "both"])
def test_each_page_reads_as_it_does_alone(
    stages: str, pair: ModelPair, pages: list[Page], plain: list[Any], rounds: list[int]
) -> None:
    """In a random order of arrival; what all of them ask for takes far fewer rounds."""
    settings = ParseSettings(stages=stages, **FIXED)
    drafts = drafts_of(pages, plain)
    order = random.Random(3).sample(range(len(pages)), len(pages))
    with ConcurrentParser(pair, settings, pages_in_flight=4) as parser:
        results = parse_all(parser, *((pages[number], drafts[number]) for number in order))
        assert parser.engine.is_idle
    parsed = dict(zip(order, results, strict=True))
    for number, result in parsed.items():
        want = plain[number]
        assert (result.raw, result.markdown) == (want.raw, want.markdown)
        assert (result.status, result.truncated, result.mode) == (
            want.status,
            want.truncated,
            "exact",
        )
    assert parsed[3].notes == ["drafter x: no answer; decoded plainly"]
    assert parsed[0].last.steps < 0.6 * parsed[0].last.tokens
    assert parsed[0].last.aal > 1
    forwards = sum(
        stage.steps - stage.rows for result in parsed.values() for stage in result.stages.values()
    )
    assert len(rounds) < 0.7 * forwards
    assert max(rounds) > 2
    if stages == "both":
        assert {"regions", "page"} <= set(parsed[2].stages)
        assert parsed[2].seconds["regions"] > 0


def test_a_page_that_fails_or_runs_away_disturbs_no_other(
    pair: ModelPair, pages: list[Page]
) -> None:
    """One is too large for the model, all that repeat themselves are stopped where they are
    alone."""
    settings = ParseSettings(stages="page", nodes=8, max_new_tokens=60, repetition=4)
    alone = PageParser(pair, settings)
    want = [alone(page) for page in pages]
    assert {expected.truncated for expected in want} >= {"repetition"}

    with ConcurrentParser(pair, settings, pages_in_flight=3) as parser:
        drafts = [draft_of(page, want[0].raw) for page in pages[:3]]
        first = zip(pages[:3], drafts, strict=True)
        rest = [(page, None) for page in pages[3:]]
        results = parse_all(parser, *first, (noise_page(560, 560), None), *rest)
        large = results.pop(3)
        assert [(parsed.raw, parsed.truncated) for parsed in results] == [
            (parsed.raw, parsed.truncated) for parsed in want
        ]
        assert isinstance(large, SoonerError)
        assert "positions; lower the dpi" in str(large)
        # Another event loop, in which pages wait for each other as well.
        again = parse_all(parser, *((page, None) for page in pages))
        assert [parsed.raw for parsed in again] == [parsed.raw for parsed in want]
        assert parser.engine.is_idle
    (closed,) = parse_all(parser, (pages[0], None))
    assert "the parser is closed" in str(closed)


def test_a_page_that_is_cancelled_leaves_the_engine(
    pair: ModelPair, pages: list[Page], rounds: list[int]
) -> None:
    async def run(parser: ConcurrentParser) -> None:
        coming = asyncio.ensure_future(parser.parse(pages[0]))
        while len(rounds) < 3:
            await asyncio.sleep(0.01)
        coming.cancel()
        while not parser.engine.is_idle:
            await asyncio.sleep(0.01)

    settings = ParseSettings(max_new_tokens=400, repetition=0)
    with ConcurrentParser(pair, settings, pages_in_flight=2) as parser:
        asyncio.run(run(parser))
        assert len(rounds) < 300


def test_a_parser_that_is_closed_ends_the_pages_under_way(
    pair: ModelPair, pages: list[Page], rounds: list[int]
) -> None:
    async def run(parser: ConcurrentParser) -> None:
        coming = asyncio.ensure_future(parser.parse(pages[0]))
        while len(rounds) < 3:
            await asyncio.sleep(0.01)
        parser.close()
        with pytest.raises(SoonerError, match="closed before the page came to its end"):
            await asyncio.wait_for(coming, 60)

    settings = ParseSettings(max_new_tokens=400, repetition=0)
    asyncio.run(run(ConcurrentParser(pair, settings, pages_in_flight=2)))


def test_what_runs_out_of_memory_in_a_batch_is_decoded_alone(
    pair: ModelPair, pages: list[Page], plain: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read smaller for that."""
    real = Decoding.round

    def full(self: Decoding) -> None:
        if len(self.rows.active) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        real(self)

    monkeypatch.setattr(Decoding, "round", full)
    settings = ParseSettings(stages="both", **FIXED)
    with ConcurrentParser(pair, settings, pages_in_flight=3) as parser:
        results = parse_all(parser, *((page, draft_of(page, "w1 w2", "w3")) for page in pages[:3]))
    for expected, parsed in zip(plain, results, strict=False):
        assert (parsed.raw, parsed.mode, parsed.notes) == (expected.raw, "exact", [])


def test_a_sparse_prefill_has_the_model_for_itself(pair: ModelPair, pages: list[Page]) -> None:
    settings = ParseSettings(stages="page", max_new_tokens=12, repetition=0, prefill="fastv:0.5")
    drafted = [(page, draft_of(page, "w1 w2")) for page in pages[:3]]
    alone = PageParser(pair, settings)
    want = [alone(page, draft) for page, draft in drafted]
    with ConcurrentParser(pair, settings, pages_in_flight=3) as parser:
        for item, parsed in zip(want, parse_all(parser, *drafted), strict=True):
            assert (parsed.raw, parsed.mode) == (item.raw, "approximate")
