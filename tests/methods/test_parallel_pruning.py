"""The visual tokens that the draft of parallel decoding keeps."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity

from sooner.methods import pruning


def test_uv_prune_equals_the_literal_sums() -> None:
    """Eq. 2 to 4 written as loops over layers, text tokens and video tokens."""
    torch.manual_seed(3)
    layers, width, hidden = 4, 12, 8
    states = torch.randn(layers + 1, width, hidden)
    visual = torch.tensor([False, True, True, False] * 3)
    text = (~visual).nonzero()[:, 0].tolist()
    literal = []
    for i in visual.nonzero()[:, 0].tolist():
        total = 0.0
        for j in text:
            for layer in range(1, layers + 1):
                now = cosine_similarity(states[layer, i], states[layer, j], dim=0)
                before = cosine_similarity(states[layer - 1, i], states[layer - 1, j], dim=0)
                total += float(now - before)
        literal.append(total)
    scores = pruning.similarity_variation(states[0], states[-1], visual)
    assert torch.allclose(scores, torch.tensor(literal), atol=1e-4)
    indices = pruning.rank("uv-prune", 0.5, states[0], states[-1], visual)
    assert indices.tolist() == sorted(sorted(range(6), key=lambda i: -literal[i])[:3])


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 0.9, 0.97, 1.0])
def test_by_frame_every_frame_keeps_its_share(ratio: float) -> None:
    """Against a loop over frames: the best of each, as many as round down to the running sum."""
    torch.manual_seed(5)
    sizes = [6, 6, 2, 9, 1, 6]  # a picture of nine among videos' frames, a newline
    frames = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    visual = torch.ones(len(frames) + 2, dtype=torch.bool)
    visual[0] = visual[-1] = False
    frames = torch.cat([torch.tensor([-1]), frames, torch.tensor([-1])])
    first, last = torch.randn(2, len(frames), 8)
    scores = pruning.similarity_variation(first, last, visual).tolist()
    total, count = sum(sizes), pruning.keep_count(sum(sizes), ratio)
    expected, start = [], 0
    for size in sizes:
        quota = (start + size) * count // total - start * count // total
        order = sorted(range(start, start + size), key=lambda i: -scores[i])
        expected += sorted(order[:quota])
        start += size
    indices = pruning.rank("uv-prune-by-frame", ratio, first, last, visual, frames)
    assert indices.tolist() == expected
    assert len(indices) == count


def test_the_end_of_a_video_is_never_pruned() -> None:
    """A newline shows nothing, so no score speaks for it, and a draft misses it."""
    torch.manual_seed(7)
    visual = torch.tensor([False] + [True] * 9 + [False] * 3)
    frames = torch.tensor([-1] + [0] * 4 + [1] * 4 + [-1] * 4)
    first, last = torch.randn(2, 13, 8)
    assert pruning.closings(visual, frames).nonzero()[:, 0].tolist() == [8]
    for criterion in pruning.CRITERIA:
        for ratio in (0.5, 0.7, 0.9):
            indices = pruning.rank(criterion, ratio, first, last, visual, frames).tolist()
            assert indices == sorted(set(indices)), criterion
            assert len(indices) == max(1, round(9 * (1 - ratio)))
            assert indices[-1] == 8, criterion
        assert pruning.rank(criterion, 1.0, first, last, visual, frames).tolist() == [8]
