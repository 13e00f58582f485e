"""VisionZip against a literal loop over an eager tower's attention."""

from __future__ import annotations

import copy

import pytest
import torch

import tiny
from sooner.models import adapt
from sooner_lab.rivals.visionzip import visionzip, zip_frame


def test_a_frame_keeps_what_is_looked_at_and_means_of_its_like() -> None:
    generator = torch.Generator().manual_seed(1)
    scores, keys, states = (torch.randn(s, generator=generator) for s in ((20,), (20, 3), (20, 5)))
    chosen, merged = zip_frame(scores, keys, states, 13)  # eleven, and two merged ones
    order = scores.argsort(descending=True).tolist()
    rest = sorted(order[11:])
    centres = [rest[0], rest[4]]
    assert chosen.tolist() == order[:11] + centres
    owner = torch.cosine_similarity(keys[:, None], keys[centres], 2).argmax(1)
    owner[centres] = torch.arange(2)
    for number, centre in enumerate(centres):
        members = [token for token in rest if owner[token] == number]
        torch.testing.assert_close(merged[centre], states[members].mean(0))
    untouched = [token for token in range(20) if token not in centres]
    assert torch.equal(merged[untouched], states[untouched])


@pytest.mark.parametrize("tokens", [3, 6])
def test_a_prompt_keeps_its_words_and_so_many_tokens_of_its_frames(tokens: int) -> None:
    adapter, inputs = adapt(tiny.model("llava_onevision")), tiny.inputs("llava_onevision", "video")
    with torch.inference_mode():
        whole = adapter.embed_prompt(inputs)
    prompt, slots = visionzip(adapter, inputs, tokens)
    visual = whole.visual[0].nonzero()[:, 0]
    words = (~whole.visual[0]).nonzero()[:, 0].tolist()
    assert set(words) | {int(visual[-1])} <= set(slots.tolist())  # and the newline
    assert prompt.width == len(slots) == len(words) + tokens + 1
    assert prompt.positions.tolist() == [list(range(prompt.width))]
    # So few of a frame's tokens are all dominant: none is merged.
    assert torch.equal(prompt.embeds[0], whole.embeds[0, slots])
    body = copy.deepcopy(adapter.model.model)
    body.vision_tower.set_attn_implementation("eager")
    with torch.inference_mode():
        pixels = inputs["pixel_values_videos"].flatten(0, 1)
        weights = body.vision_tower(pixels, output_attentions=True).attentions[-1]
        scores = body.apply_pooling(weights.mean((1, 2))[..., None])[..., 0]  # [frames, tokens]
    frames, size = scores.shape
    for frame, row in enumerate(scores):
        count = tokens * (frame + 1) // frames - tokens * frame // frames
        best = visual[frame * size : (frame + 1) * size][row.topk(count).indices]
        assert set(best.tolist()) <= set(slots.tolist())
