"""Stage 1 costs no more than it may: runaway crops, budgets, batches, full memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import sooner.tasks.parse.decoding as decoding
from sooner.documents import Page, PageDraft, Region
from sooner.documents.regions import Label
from sooner.errors import MemoryRanOutError, SoonerError
from sooner.tasks.loading import Loaded, ModelPair
from sooner.tasks.parse import PageParser, ParseSettings
from sooner.tasks.parse.contexts import Piece
from sooner.tasks.parse.decoding import DecodedRow
from sooner.tasks.parse.regions import (
    COLD,
    ENOUGH,
    FIRST,
    RECENT,
    SPARE,
    TIMES,
    TRIAL,
    RegionStage,
    StageChoice,
    fixed_forwards,
    unsure,
)
from tasks.parsing import draft_of, noise_page, qwen3_vl

LIMIT = 90
FIXED = {"nodes": 8, "max_new_tokens": LIMIT, "repetition": 0}


class Stutter(torch.nn.Module):
    """A head that says "together together together" while it `is_on`."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.head, self.is_on = head, False

    @property
    def weight(self) -> Any:
        return self.head.weight

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        logits = self.head(states)  # [rows, entries, vocabulary]
        if self.is_on:
            logits = logits.clone()
            logits[..., 7] = 1e4
        return logits


def is_of_crops(request: decoding.DecodeRequest) -> bool:
    return "drafter" not in request.verification


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> ModelPair:
    """A model that reads pages, and on crops says one word for ever."""
    known = qwen3_vl()
    model = copy.deepcopy(known.target.model)
    model.lm_head = Stutter(model.lm_head)
    decode = decoding.decode_alone

    def stuttering(request: Any, *rest: Any) -> Any:
        before, model.lm_head.is_on = model.lm_head.is_on, is_of_crops(request)
        try:
            return decode(request, *rest)
        finally:
            model.lm_head.is_on = before

    monkeypatch.setattr(decoding, "decode_alone", stuttering)
    return ModelPair(Loaded("hostile", model, known.target.processor), prompt=known.prompt)


@contextmanager
def spoken() -> Iterator[list[DecodedRow]]:
    """What every row of stage 1 says within the block."""
    outputs: list[DecodedRow] = []
    keep = RegionStage._keep

    def record_row(self: Any, crop: Any, output: DecodedRow, *rest: Any) -> None:
        outputs.append(output)
        keep(self, crop, output, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegionStage, "_keep", record_row)
        yield outputs


def rough(page: Page, *counts: int) -> PageDraft:
    """Regions of so many words that the model does not say."""
    return draft_of(page, *(" ".join(["w3", "w5"] * count)[: 3 * count - 1] for count in counts))


def alone(pair: ModelPair, page: Page, draft: PageDraft) -> Any:
    return PageParser(pair, ParseSettings(stages="page", **FIXED))(page, draft)


def test_a_runaway_crop_is_stopped_and_the_page_completes(hostile: ModelPair) -> None:
    page = noise_page()
    draft = rough(page, 4, 60, 9)
    plain = PageParser(hostile, ParseSettings(**FIXED))(page)
    parser = PageParser(hostile, ParseSettings(stages="both", **FIXED))
    with spoken() as outputs:
        parsed = parser(page, draft)
    assert parsed.raw == plain.raw
    assert parsed.markdown == plain.markdown
    assert parsed.mode == "exact"
    assert (parsed.status, parsed.truncated) == (plain.status, plain.truncated)
    assert len(outputs) == 3
    assert all(set(output.tokens) == {7} for output in outputs)
    for output, length in zip(
        sorted(outputs, key=lambda output: len(output.tokens)), (4, 9, 60), strict=True
    ):
        assert len(output.tokens) <= TIMES * (length + 1) + SPARE
        assert output.truncated is not None
    # Its budget is what the page alone is expected to cost.
    letters = sum(len(text) for text in draft.texts)
    assert parsed.stages["regions"].steps <= round(FIRST * letters)


@pytest.mark.slow
def test_a_page_with_drafts_is_never_much_slower_than_the_page_alone(hostile: ModelPair) -> None:
    """`auto` over twenty pages against a target whose crops all run away, counted in forwards.

    A page that is far cheaper than all before it can't be known beforehand: stage 1 may have had
    its share of the cheapest of these.
    """
    auto = PageParser(hostile, ParseSettings(stages="auto", **FIXED))
    page_only = PageParser(hostile, ParseSettings(stages="page", **FIXED))
    tried, before = 0, list[int]()
    for seed in range(20):
        page = noise_page(seed=seed)
        draft = rough(page, 40, 25, 40)
        parsed, single = auto(page, draft), page_only(page, draft)
        auto.choice.add("page", 1, 1e-9)  # the clock of a test machine is no matter here
        assert parsed.raw == single.raw
        regions = parsed.stages.get("regions")
        tried += regions is not None
        spent = parsed.last.steps + (regions.steps if regions else 0)
        minimum = min(before[-RECENT:], default=0)
        # What drafts have taught the two parsers may differ by a round.
        assert spent <= single.last.steps + TRIAL * max(single.last.steps, minimum) + 1
        before.append(single.last.steps)
    assert tried > COLD
    assert tried <= COLD + ENOUGH + 2


def test_a_budget_is_a_share_of_the_cheapest_page(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = StageChoice()
    assert choice.budget(160, 50)[0] == 0  # nothing known
    for forwards in (20, 20, 200, 10):
        choice.add("page", 1, 1.0, 100, forwards)
    choice.add("page", 1, 1.0, 0, 99)  # without a draft: no measure of any
    monkeypatch.setattr(StageChoice, "share", 0.5)
    for letters, forwards in ((200, 5), (50, 2)):
        assert choice.budget(letters, 50) == (forwards, 25)
    assert fixed_forwards(160) == 10


def piece(place: int, box: tuple[float, ...], *texts: str, **region: Any) -> Piece:
    label = region.pop("label", Label.LIST_ITEM)
    return Piece(place, Region(box, label, place, list(texts), **region), list(texts))  # type: ignore[arg-type]


def test_only_regions_that_the_drafter_is_unsure_of_are_looked_at() -> None:
    box = (0, 0, 90, 20)
    pieces = [
        piece(0, box, "sure", confidence=0.99),
        piece(1, box, "unsure", confidence=0.9),
        piece(2, box, "who knows"),
        piece(3, box, "one", "other", confidence=1.0),
        piece(4, box, "x = y", confidence=1.0, label=Label.FORMULA),
    ]
    assert [item.place for item in unsure(pieces, 0.95)] == [1, 2, 3, 4]
    assert len(unsure(pieces, 1.0)) == 5


@pytest.mark.parametrize("max_rows", [1, 2, 0])
def test_full_memory_is_tried_again_with_half_of_the_rows(
    max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to `max_rows` rows fit; what they say is what they say in one batch."""
    pair, page = qwen3_vl(), noise_page(84, 140)
    draft = rough(page, 8, 6, 7, 9)
    rows: list[int] = []
    decode = decoding.decode_alone

    def limited(request: Any, *rest: Any) -> Any:
        if is_of_crops(request):
            if len(request.limits) > max_rows:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            rows.append(len(request.limits))
        return decode(request, *rest)

    settings = ParseSettings(stages="regions", **FIXED)
    want = PageParser(pair, settings)(page, draft)
    monkeypatch.setattr(decoding, "decode_alone", limited)
    parsed = PageParser(pair, settings)(page, draft)
    if max_rows:
        assert [region.text for region in parsed.regions] == [
            region.text for region in want.regions
        ]
        assert rows == [max_rows] * (4 // max_rows)
        assert parsed.notes == []
        return
    (note, whole) = parsed.notes
    assert note.startswith("stage 1 was left out: a single region: CUDA out of memory")
    assert whole == "no regions to parse; the page was parsed as a whole"
    assert issubclass(MemoryRanOutError, SoonerError)
