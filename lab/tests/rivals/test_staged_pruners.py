"""PyramidDrop and SparseVLM against a full-length forward with an explicit mask in each layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tiny
from sooner.errors import SoonerError
from sooner.sparse.pruning import Pruner
from sooner_lab.rivals.staged_pruners import PyramidDrop, SparseVLM, density_peaks
from sparse_attention.literal import read
from sparse_attention.test_pruning_context import (
    decode,
    is_marked_and_holds_less,
    padding_changes_nothing,
    speculation_changes_nothing,
)
from sparse_attention.test_pruning_reference import FAMILIES, TEXT, best, check, places

PRUNERS: dict[str, Pruner] = {
    "sparse-vlm": SparseVLM(ratio=0.7, recycle=0.4, pool=0.5),
    "pyramid-drop": PyramidDrop(ratio=0.5),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_pyramid_drop(family: str) -> None:
    inputs = tiny.inputs(family, "mixed")
    visual, width = places(family, inputs)
    hidden: dict[int, set[int]] = {}
    left = list(visual)
    for number, layer in enumerate((1, 3, 4)):
        scores = read(family, inputs, TEXT, hidden).attention[layer - 1][width - 1]
        chosen = best(scores, left, round(len(visual) * 0.5 ** (number + 1)))
        hidden[layer] = set(left) - chosen
        left = [place for place in left if place in chosen]
    expected = read(family, inputs, TEXT, hidden).logits
    check(family, inputs, PyramidDrop(ratio=0.5, layers=(1, 3, 4)), expected)


@pytest.mark.parametrize("recycle", [0.0, 0.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_sparse_vlm(family: str, recycle: float) -> None:
    inputs = tiny.inputs(family, "mixed")
    visual, width = places(family, inputs)
    raters = _raters(read(family, inputs, TEXT).inputs[0], visual, width)
    hidden: dict[int, set[int]] = {}
    states: dict[int, dict[int, Tensor]] = {}
    left, pool = list(visual), 0.6
    for number, layer in enumerate((1, 3)):
        reading = read(family, inputs, TEXT, hidden, states=states)
        scores = reading.attention[layer - 1][raters].mean(0)
        budget = round(len(visual) * 0.3 ** ((number + 1) / 2))
        over = len(left) - budget
        merged = min(round(budget * recycle), round(over * pool), budget - 1)
        chosen = best(scores, left, budget - merged)
        if merged:
            losers = [place for place in left if place not in chosen]
            count = max(merged, round(len(losers) * pool))
            losers = sorted(best(scores, losers, count))
            states[layer] = _merge(reading.inputs[layer], losers, merged)
            chosen |= set(states[layer])
        hidden[layer] = set(left) - chosen
        left = [place for place in left if place in chosen]
    expected = read(family, inputs, TEXT, hidden, states=states).logits
    pruner = SparseVLM(ratio=0.7, layers=(1, 3), recycle=recycle, pool=pool)
    check(family, inputs, pruner, expected)
    assert bool(states) is bool(recycle)


def _raters(embedded: Tensor, visual: list[int], width: int) -> list[int]:
    words = list(range(max(visual) + 1, width))
    shares = torch.zeros(len(words))
    for place in visual:
        shares += torch.stack([embedded[place] @ embedded[word] for word in words]).softmax(0)
    return [word for word, share in zip(words, shares, strict=True) if share > shares.mean()]


def _merge(entering: Tensor, losers: list[int], count: int) -> dict[int, Tensor]:
    """State of each cluster's centre: the mean of its members."""
    centres, owner = density_peaks(entering[losers], count)
    return {
        losers[int(centre)]: torch.stack(
            [
                entering[place]
                for place, cluster in zip(losers, owner, strict=True)
                if cluster == number
            ]
        ).mean(0)
        for number, centre in enumerate(centres)
    }


@pytest.mark.parametrize("name", PRUNERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_pruned_run_is_marked_and_holds_less(family: str, name: str) -> None:
    is_marked_and_holds_less(family, PRUNERS[name])


@pytest.mark.parametrize("name", PRUNERS)
def test_a_prompt_without_pixels_is_left_alone(name: str) -> None:
    inputs = tiny.inputs("qwen2_5_vl", "text")
    assert decode("qwen2_5_vl", PRUNERS[name], inputs=inputs).stats.mode == "exact"


@pytest.mark.parametrize("name", PRUNERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_has_the_output_of_the_pruned_target(family: str, name: str) -> None:
    speculation_changes_nothing(family, PRUNERS[name])


@pytest.mark.parametrize("name", PRUNERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_prompt_prunes_as_without_padding(family: str, name: str) -> None:
    padding_changes_nothing(family, PRUNERS[name])


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(SoonerError, match="layers is 0"):
        PyramidDrop(layers=(0, 3))
    with pytest.raises(SoonerError, match="pool is -1"):
        SparseVLM(pool=-1)
