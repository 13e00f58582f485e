"""Each pruner's logits equal those of a full-length forward with an explicit mask in each layer.

What the mask hides is worked out here anew, with plain loops over the attention maps that the eager
model itself returns, so ranking, dropping, positions, cache and DeepStack are all checked at once.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from sooner.models import adapt
from sooner.sparse.modality import keep_count
from sooner.sparse.pruning import FastV, Pruner, PyramidDrop, SparseVLM
from sooner.sparse.pruning.stage import density_peaks
from sparse_attention.literal import LAYERS, forced, read

FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
TEXT = [7, 31, 4, 4, 62, 18, 9]
# Sums of up to sixty fp32 products in another order, six layers deep.
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def places(family: str, inputs: dict[str, Any]) -> tuple[list[int], int]:
    """Visual places of a prompt and its width."""
    visual = adapt(tiny.model(family, layers=LAYERS)).visual_tokens(inputs)[0]
    return visual.nonzero()[:, 0].tolist(), len(visual)


def check(
    family: str, inputs: dict[str, Any], pruner: Pruner, expected: Tensor, **how: Any
) -> None:
    model = tiny.model(family, layers=LAYERS)
    actual = forced(model, inputs, TEXT, prefill=pruner, **how)
    torch.testing.assert_close(actual, expected.float().softmax(-1), **CLOSE)
    plain = forced(model, inputs, TEXT)
    assert not torch.allclose(actual, plain, atol=1e-3), "pruning should be felt"


def best(scores: Tensor, among: list[int], count: int) -> set[int]:
    return set(sorted(among, key=lambda place: -float(scores[place]))[:count])


@pytest.mark.parametrize("kind", ["video", "images", "mixed"])
@pytest.mark.parametrize("layer", [1, 2, 5])
@pytest.mark.parametrize("family", FAMILIES)
def test_fastv(family: str, layer: int, kind: str) -> None:
    inputs = tiny.inputs(family, kind)
    visual, width = places(family, inputs)
    scores = read(family, inputs, TEXT).attention[layer - 1][width - 1]
    chosen = best(scores, visual, keep_count(len(visual), 0.7))
    expected = read(family, inputs, TEXT, {layer: set(visual) - chosen}).logits
    check(family, inputs, FastV(ratio=0.7, layer=layer), expected)


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
