"""DyCoke against a full-length forward with an explicit mask in each layer; what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sooner
import tiny
from recorders import hook_count
from sooner.errors import SoonerError, UnsupportedError
from sooner.sparse.modality import keep_count
from sooner_lab.rivals.dycoke import DyCoke
from sparse_attention.literal import LAYERS, read
from sparse_attention.test_pruning_reference import FAMILIES, TEXT, best, check, places


@pytest.mark.parametrize("ratio", [0.5, 1.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_dycoke_merges_over_time(family: str, ratio: float) -> None:
    inputs = tiny.inputs(family, "video")
    gone = _merged(family, inputs, ratio)
    expected = read(family, inputs, TEXT, {0: gone}).logits
    check(family, inputs, DyCoke(ratio=ratio, decode_ratio=0), expected)


def _merged(family: str, inputs: dict[str, Any], ratio: float) -> set[int]:
    """Places that stage 1 drops in a video of two (Qwen) or four (LLaVA) frames of four tokens."""
    visual, _ = places(family, inputs)
    embedded = read(family, inputs, TEXT).inputs[0]
    frames = [visual[begin : begin + 4] for begin in range(0, len(visual) // 4 * 4, 4)]
    gone: set[int] = set()
    for number, twin in ((1, 0), (3, 2), (2, 0)):
        if number < len(frames):
            alike = torch.stack(
                [
                    torch.cosine_similarity(embedded[slot], embedded[other], 0)
                    for slot, other in zip(frames[number], frames[twin], strict=True)
                ]
            )
            count = 4 - keep_count(4, ratio)
            gone |= {frames[number][int(place)] for place in alike.topk(count).indices}
    return gone


@pytest.mark.parametrize("threshold", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("ratio", [0.0, 0.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_dycoke_chooses_again_in_decoding(family: str, ratio: float, threshold: float) -> None:
    inputs, layer = tiny.inputs(family, "video"), 2
    visual, width = places(family, inputs)
    gone = _merged(family, inputs, ratio) if ratio else set()
    left = [place for place in visual if place not in gone]
    rows: dict[int, dict[int, set[int]]] = {number: {} for number in range(layer + 1, LAYERS)}
    last, resting, choices = None, set(), 0
    for query in range(width, width + len(TEXT) - 1):
        pattern = read(family, inputs, TEXT, {0: gone}, rows).attention[layer][query]
        visible = pattern[left]
        if last is None or float(torch.cosine_similarity(visible, last, 0)) < threshold:
            resting = set(left) - best(pattern, left, keep_count(len(left), 0.6))
            choices += 1
        last = visible
        for number in rows:
            rows[number][query] = resting
    expected = read(family, inputs, TEXT, {0: gone}, rows).logits
    pruner = DyCoke(ratio=ratio, decode_ratio=0.6, layer=layer, threshold=threshold)
    check(family, inputs, pruner, expected, stepwise=True)
    assert choices == {0.0: 1, 1.0: len(TEXT) - 1}.get(threshold, choices)


def decode(family: str, pruner: DyCoke | None, method: Any = None, kind: str = "video") -> Any:
    model = tiny.model(family, layers=LAYERS)
    options = {"max_new_tokens": 13, "eos_token_id": None}
    return sooner.generate(model, tiny.inputs(family, kind), method, prefill=pruner, **options)


@pytest.mark.parametrize("decode_ratio", [0.0, 0.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_is_marked_and_holds_less(family: str, decode_ratio: float) -> None:
    pruner = DyCoke(ratio=0.6, decode_ratio=decode_ratio, layer=2)
    plain = decode(family, None)  # transformers leaves hooks of its own
    before = hook_count(tiny.model(family, layers=LAYERS))
    pruned = decode(family, pruner)
    assert pruned.stats.mode == "approximate"
    assert any("DyCoke" in note for note in pruned.stats.notes)
    assert pruned.stats.cache_bytes < plain.stats.cache_bytes
    assert decode(family, pruner, kind="text").stats.mode == "exact"
    assert hook_count(tiny.model(family, layers=LAYERS)) == before


@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_go_with_the_first_stage_alone(family: str) -> None:
    method = sooner.PromptLookup(num_draft_tokens=3, max_ngram=1)
    first = DyCoke(ratio=0.6, decode_ratio=0.0)
    assert decode(family, first, method).tokens == decode(family, first).tokens
    with pytest.raises(UnsupportedError, match="decode_ratio=0"):
        decode(family, DyCoke(decode_ratio=0.5, layer=2), method)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(SoonerError, match="threshold is 2"):
        DyCoke(threshold=2)
    with pytest.raises(SoonerError, match="layer is -1"):
        DyCoke(layer=-1)
