"""VisionZip against a literal reference: attention maps of an eager tower, plain loops, masks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import sooner
import tiny
from recorders import hook_count
from sooner.errors import SoonerError, UnsupportedError
from sooner.models import adapt
from sooner_lab.rivals.visionzip import VisionZip
from sparse_attention.literal import LAYERS, forced, read

FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
TEXT = [7, 31, 4, 4, 62, 18, 9]
# Sums of up to sixty fp32 products in another order, six layers deep.
CLOSE = {"atol": 2e-5, "rtol": 1e-4}

Frame = tuple[Tensor, Tensor]
"""Attention received by each patch `[patches]`, and its key, mean over heads `[patches, dim]`."""


def tower_frames(family: str, inputs: dict[str, Any], monkeypatch: Any) -> list[Frame]:
    """Returns each frame that the tower's last layer attends in, in the tower's order of
    patches.
    """
    model = copy.deepcopy(tiny.model(family, layers=LAYERS))
    body = model.model
    tower = body.vision_tower if family == "llava_onevision" else body.visual
    llava = family == "llava_onevision"
    parts = [
        part
        for name, part in tower.named_modules()
        if name.endswith("self_attn" if llava else ".attn")
    ]
    raw: list[Tensor] = []
    frames: list[Frame] = []

    def record(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **how: Any) -> Any:
        weights = (query @ key.transpose(2, 3) * how["scaling"]).softmax(-1)
        if module is parts[-1]:
            frames.extend((weight.mean((0, 1)), torch.empty(0)) for weight in weights)
        return (weights @ value).transpose(1, 2), weights

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "recorded", record)
    for module in tower.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation = "recorded"
    source = parts[-1].k_proj if llava else parts[-1].qkv
    source.register_forward_hook(lambda module, args, output: raw.append(output))
    with torch.no_grad():
        adapt(model).embed_prompt(inputs)
    heads = 2
    keys = []
    for output in raw:  # each call of the tower
        if llava:
            keys += [view.unflatten(-1, (heads, -1)).mean(1) for view in output]
        else:
            keys.append(output.unflatten(-1, (3, heads, -1))[:, 1].mean(1))
    if not llava:
        sizes = [len(scores) for scores, _ in frames]
        keys = list(torch.cat(keys).split(sizes))
    return [(scores, key) for (scores, _), key in zip(frames, keys, strict=True)]


def averaged(frame: Frame, groups: list[list[int]]) -> Frame:
    return (
        torch.stack([frame[0][group].mean() for group in groups]),
        torch.stack([frame[1][group].mean(0) for group in groups]),
    )


POOLED = [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
"""Patches of a 4x4 view under each of its 2x2 pooled tokens."""


def llava_units(frames: list[Frame]) -> list[tuple[list[int], Frame]]:
    """For each unit, the numbers of its tokens among the visual ones, and what is known of them:
    each video has four frames of four tokens and a newline."""
    return [
        (list(range(begin, begin + 4)), averaged(frame, POOLED))
        for number, frame in enumerate(frames)
        for begin in (17 * (number // 4) + 4 * (number % 4),)
    ]


def qwen_units(family: str, kind: str, frames: list[Frame]) -> list[tuple[list[int], Frame]]:
    units, begin = [], 0
    for scores, keys in frames:
        groups = [list(range(4 * number, 4 * number + 4)) for number in range(len(scores) // 4)]
        merged = averaged((scores, keys), groups)
        if family == "qwen2_5_vl" and len(groups) == 6:  # a 2x3 grid in windows of 2x2
            window = torch.tensor([0, 1, 3, 4, 2, 5])  # place of each row that the tower has
            order = window.argsort()
            merged = (merged[0][order], merged[1][order])
        units.append((list(range(begin, begin + len(groups))), merged))
        begin += len(groups)
    return units


def reference(
    family: str, inputs: dict[str, Any], units: list, dominant: int, contextual: int
) -> tuple[set[int], dict[int, Tensor], Tensor]:
    """Hidden places, the states of the contextual ones, and the logits."""
    visual = adapt(tiny.model(family, layers=LAYERS)).visual_tokens(inputs)[0].nonzero()[:, 0]
    embedded = read(family, inputs, TEXT).inputs[0]
    hidden: set[int] = set()
    states: dict[int, Tensor] = {}
    for numbers, (scores, keys) in units:
        if len(numbers) <= dominant + contextual:
            continue
        order = sorted(range(len(numbers)), key=lambda index: -float(scores[index]))
        rest = sorted(order[dominant:])
        centres = [rest[number * (len(rest) // contextual)] for number in range(contextual)]
        members: dict[int, list[int]] = {centre: [centre] for centre in centres}
        for index in rest:
            if index not in members:
                alike = [float(torch.cosine_similarity(keys[index], keys[c], 0)) for c in centres]
                members[centres[alike.index(max(alike))]].append(index)
                hidden.add(int(visual[numbers[index]]))
        for centre, group in members.items():
            places = [int(visual[numbers[index]]) for index in group]
            states[int(visual[numbers[centre]])] = embedded[places].mean(0)
    return hidden, states, read(family, inputs, TEXT, {0: hidden}, states={0: states}).logits


@pytest.mark.parametrize(("dominant", "contextual"), [(2, 1), (1, 2), (0, 1)])
@pytest.mark.parametrize("kind", tiny.VISUAL_KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_literal_reference(
    family: str, kind: str, dominant: int, contextual: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, llava = tiny.inputs(family, kind), family == "llava_onevision"
    model = tiny.model(family, layers=LAYERS)
    if llava and "image" in tiny.VISUAL_KINDS[kind]:
        with pytest.raises(UnsupportedError, match="no pictures; give a video"):
            forced(model, inputs, TEXT, prefill=VisionZip(dominant, contextual))
        return
    frames = tower_frames(family, inputs, monkeypatch)
    units = llava_units(frames) if llava else qwen_units(family, kind, frames)
    hidden, _, expected = reference(family, inputs, units, dominant, contextual)
    assert hidden
    actual = forced(model, inputs, TEXT, prefill=VisionZip(dominant, contextual))
    torch.testing.assert_close(actual, expected.float().softmax(-1), **CLOSE)
    assert not torch.allclose(actual, forced(model, inputs, TEXT), atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_is_approximate_and_tells_how_much_is_left(family: str) -> None:
    inputs, model = tiny.inputs(family, "video"), tiny.model(family)
    made = sooner.generate(
        model, inputs, prefill=VisionZip(2, 1), max_new_tokens=4, do_sample=False
    )
    assert made.stats.mode == "approximate"
    total, left = (17, 13) if family == "llava_onevision" else (8, 6)
    notes = " ".join(made.stats.notes + list(getattr(made.stats, "approximations", [])))
    assert f"VisionZip(dominant=2, contextual=1): visual tokens {total} -> {left}" in notes


@pytest.mark.parametrize("family", FAMILIES)
def test_no_hook_is_left(family: str) -> None:
    model = tiny.model(family)
    before = hook_count(model)
    with VisionZip()(model):
        assert hook_count(model) > before
    assert hook_count(model) == before
    with pytest.raises(ZeroDivisionError), VisionZip()(model):
        _ = 1 / 0
    assert hook_count(model) == before


def test_bad_values_are_refused() -> None:
    with pytest.raises(SoonerError, match="contextual is 0"):
        VisionZip(54, 0)
    with pytest.raises(SoonerError, match=r"dominant is 0\.5"):
        VisionZip(0.5)  # type: ignore[arg-type]


def test_other_families_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="not of 'llama'"), VisionZip()(tiny.model("llama")):
        pass
