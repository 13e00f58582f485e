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
from sooner.sparse.pruning import FastV, Pruner
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
