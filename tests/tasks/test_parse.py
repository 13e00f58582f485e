"""Pages parsed by tiny random models: the same text whatever was drafted."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sooner.documents import PageDraft, Region
from sooner.errors import SoonerError
from sooner.tasks.loading import Loaded, ModelPair, load_pair
from sooner.tasks.parse import PARTIAL, PageParser, ParseSettings
from sooner.tasks.parse import regions as regions_module
from sooner.tasks.parse.decoding import (
    LONGEST,
    PERIODS,
    DecodeRequest,
    RunawayWatch,
    decode_alone,
)
from sooner.tasks.parse.model_inputs import cells_of, picture_inputs
from tasks.parsing import draft_of, noise_page, qwen3_vl

LIMIT = 40
FIXED = {"nodes": 12, "max_new_tokens": LIMIT}  # not what this machine measures to pay


@pytest.fixture(scope="module")
def qwen() -> ModelPair:
    return qwen3_vl()


@pytest.fixture(scope="module")
def llava(target_folder: Path) -> ModelPair:
    return load_pair(str(target_folder))


def plain_text(pair: ModelPair) -> str:
    return PageParser(pair, ParseSettings(**FIXED))(noise_page()).raw


def perfect(pair: ModelPair) -> PageDraft:
    """The model's own text in three regions."""
    words = plain_text(pair).split(" ")
    parts = words[:10], words[10:25], words[25:]
    return draft_of(noise_page(), *(" ".join(part) for part in parts))


def drafts(pair: ModelPair) -> dict[str, PageDraft]:
    page, whole = noise_page(), perfect(pair)
    texts = whole.texts
    known = texts[0].split(" ")
    return {
        "perfect": whole,
        "shuffled": draft_of(page, *reversed(texts)),
        "branches": draft_of(page, *([texts[-1 - n], text] for n, text in enumerate(texts))),
        "garbage": draft_of(page, " ".join(known[::-1] * 5), "", "???", " ".join(known * 3)),
        "half": draft_of(page, f"{texts[0]} {texts[0]}", " ".join(known[::2])),
    }


@pytest.mark.parametrize("stages", ["page", "both"])
@pytest.mark.parametrize("quality", ["perfect", "shuffled", "branches", "garbage", "half"])
@pytest.mark.parametrize("family", ["qwen", "llava"])
def test_the_text_is_that_of_plain_decoding(
    family: str, quality: str, stages: str, request: pytest.FixtureRequest
) -> None:
    pair = request.getfixturevalue(family)
    parser = PageParser(pair, ParseSettings(stages=stages, **FIXED))
    plain = PageParser(pair, ParseSettings(**FIXED))(noise_page())
    for _ in range(2):  # what the first page taught is used for the second
        parsed = parser(noise_page(), drafts(pair)[quality])
        assert parsed.raw == plain.raw
        assert parsed.markdown == plain.markdown
        assert parsed.mode == "exact"
        assert parsed.notes == []
        assert set(parsed.stages) == ({"page"} if stages == "page" else {"regions", "page"})
    assert len(set(plain.raw.split(" "))) > 3


@pytest.mark.parametrize("rows", [32, 2])
def test_a_region_reads_as_its_crop_alone(
    qwen: ModelPair, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ragged batch of crops of different size, drafts good and bad."""
    monkeypatch.setattr(regions_module, "ROWS", rows)
    page = noise_page(140, 160)
    boxes = [(0, 0, 140, 40), (0, 40, 70, 160), (75, 45, 133, 90)]
    target = qwen.target
    cells = cells_of(
        target.processor, picture_inputs(target.processor, [page.picture], "w8", target.model)
    )
    assert cells is not None
    crops = [cells.crop(cells.picture(page), box, page.size) for box in boxes]
    alone = []
    for crop in crops:
        inputs = picture_inputs(target.processor, [crop], "w8 w9 w10", target.model)
        (output,), _ = decode_alone(DecodeRequest(inputs, [24], [0]), target.model, {95})
        alone.append(target.tokenizer.decode(output.tokens, skip_special_tokens=True))
    assert len(set(alone)) == 3
    regions = [
        Region(box, order=n, drafts=[text])
        for n, (box, text) in enumerate(zip(boxes, [alone[0], "w1 w2", alone[1]], strict=True))
    ]
    options = {"margin": 2, "nodes": 8, "max_new_tokens": 24}
    parser = PageParser(qwen, ParseSettings(stages="regions", **options))
    parsed = parser(page, PageDraft(regions, size=page.size, drafter="x"))
    assert [region.text for region in parsed.regions] == alone
    assert parsed.markdown == "\n\n".join(alone) + "\n"
    assert parsed.mode == "approximate"
    assert parsed.stages["regions"].rows == 3
    # A region without a box has no crop: its draft is not the model's word.
    regions[1] = replace(regions[1], bbox=None)
    parsed = parser(page, PageDraft(regions, size=page.size, drafter="x"))
    assert [region.text for region in parsed.regions] == [alone[0], "w1 w2", alone[2]]
    assert parsed.status == PARTIAL
    assert parsed.reason.endswith("1 of 3 regions were not read and are drafts")


def stuck(pair: ModelPair) -> ModelPair:
    """Returns the model, but that it always answers token 1."""
    model = copy.deepcopy(pair.target.model)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    model.generation_config.suppress_tokens = [0]
    return ModelPair(Loaded("stuck", model, pair.target.processor), prompt=pair.prompt)


def runaway(tokens: list[int], limit: int) -> tuple[int, int] | None:
    """Returns how many tokens a runaway has where the watch stops it, and how many are sound."""
    watch = RunawayWatch(limit)
    for count, token in enumerate(tokens, start=1):
        if watch.add(token):
            return count, watch.sound
    return None


def test_a_runaway_is_stopped_and_reported(qwen: ModelPair) -> None:
    pair = stuck(qwen)
    plain = PageParser(pair, ParseSettings(max_new_tokens=200, repetition=20))(noise_page())
    assert (plain.status, plain.truncated) == (PARTIAL, "repetition")
    assert plain.reason == "stopped after 21 tokens: the text repeats itself"
    assert plain.raw == " ".join(["w1"] * 21)
    assert plain.markdown == "w1\n"
    assert not plain.counts_for_speed
    assert plain.last.tokens_per_second == 0
    drafted = PageParser(pair, ParseSettings(max_new_tokens=200, repetition=20, nodes=12))
    again = drafted(noise_page(), draft_of(noise_page(), "w1 " * 60))
    assert again.raw == plain.raw
    never = PageParser(pair, ParseSettings(max_new_tokens=60, repetition=0))(noise_page())
    assert never.truncated == "length"


@given(
    st.lists(st.integers(0, 2), max_size=12),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(1, 30),
)
def test_runaways_follow_their_definition(head: list[int], period: list[int], limit: int) -> None:
    tokens = head + period * 12

    def is_runaway(text: list[int]) -> bool:
        for p in range(1, min(LONGEST, len(text)) + 1):
            run = 0
            while run + p < len(text) and text[-1 - run] == text[-1 - run - p]:
                run += 1
            if run >= limit and run >= (PERIODS - 1) * p:
                return True
        return False

    ends = [end for end in range(1, len(tokens) + 1) if is_runaway(tokens[:end])]
    result = runaway(tokens, limit)
    assert (result[0] if result else None) == (ends[0] if ends else None)


@pytest.mark.parametrize(("prefill", "mode"), [("fastv:0.5", "approximate"), ("auto", "exact")])
def test_a_record_describes_its_sparse_prefill(prefill: str, mode: str) -> None:
    """Patterns leave so short a page dense. Nothing stays behind: the next parser is exact."""
    pair, page = qwen3_vl(), noise_page()
    page_settings = ParseSettings(stages="page", max_new_tokens=12, repetition=0)
    before = PageParser(pair, page_settings)(page)
    sparse = PageParser(pair, replace(page_settings, prefill=prefill))(page)
    assert (sparse.mode, sparse.stages["page"].mode) == (mode, mode)
    assert sparse.prefill["name"] == ("MMInference" if prefill == "auto" else "FastV")
    assert prefill != "auto" or sparse.prefill["flops_share"] == 1.0
    after = PageParser(pair, page_settings)(page)
    assert (after.mode, after.prefill) == ("exact", None)
    assert after.raw == before.raw
    with pytest.raises(SoonerError, match="fastv"):
        ParseSettings(prefill="fastw")


def test_a_page_that_takes_too_long_is_cut(qwen: ModelPair) -> None:
    """Whatever it said in the time."""
    parser = PageParser(qwen, ParseSettings(timeout=1e-6, **FIXED))
    plain = PageParser(qwen, ParseSettings(**FIXED))(noise_page())
    for draft in (None, perfect(qwen)):
        parsed = parser(noise_page(), draft)
        assert (parsed.status, parsed.truncated) == (PARTIAL, "time")
        assert parsed.reason.endswith("tokens and 1e-06 s; raise --timeout")
        assert parsed.raw
        assert plain.raw.startswith(parsed.raw)
        assert not parsed.counts_for_speed
    slow = PageParser(qwen, ParseSettings(timeout=1000, **FIXED))
    assert slow(noise_page()).raw == plain.raw
    with pytest.raises(SoonerError, match="timeout is -1"):
        ParseSettings(timeout=-1)
