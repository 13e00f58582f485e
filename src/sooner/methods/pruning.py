"""Which visual tokens a draft needs: scores over the visual tokens of one prompt, larger is kept.

UV-Prune (ParallelVLM, Kong et al. 2025, eq. 2 to 4) scores a video token by how much its cosine
similarity with the text *grows* from the embeddings to layer L of the target. The sum over layers
of eq. 3 telescopes to `S^L - S^0`, and the sum over text tokens of a cosine is one dot product
with the sum of the normalised text states, so the cost is O(m d) for m tokens of width d.

In the paper all tokens of a prompt compete. By frame (ours), tokens compete with those of their own
frame or picture alone, and each of these keeps its share of the budget: what a scene holds is never
dropped for another scene's sake.

Both models see the same frames and pictures in the same order, each in a grid of its own. A token
of the target's is matched with the draft's along three axes, frame, line and column, by where its
centre lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..models.base import Adapter
from ..sparse.modality import keep_count

Criterion = Literal["uv-prune", "uv-prune-by-frame", "uniform"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)


def similarity(states: Tensor, visual: Tensor) -> Tensor:
    """Returns the sum over text tokens of the cosine with each visual token (eq. 2), `[tokens]`.

    Args:
        states: one row's hidden states, `[width, hidden]`.
        visual: which of them are visual, `[width]` bool; the others are text.
    """
    states = states.float()
    text = normalize(states[~visual], dim=-1).sum(0)  # [hidden]
    # Norms are divided by last, so that no normalised copy of the video is made.
    lengths = states.norm(dim=-1).clamp_min(torch.finfo(states.dtype).tiny)
    return ((states @ text) / lengths)[visual]


def similarity_variation(first: Tensor, last: Tensor, visual: Tensor) -> Tensor:
    """Returns UV-Prune's score (eq. 3): growth of the similarity from `first` to `last`, both
    `[width, hidden]`."""
    return similarity(last, visual) - similarity(first, visual)


def uniform(tokens: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Returns `count` indices spread evenly over `tokens`, ascending."""
    return (torch.arange(count, device=device) * tokens) // max(count, 1)


def top_by_frame(scores: Tensor, count: int, groups: Tensor) -> Tensor:
    """Returns indices of the largest scores `[tokens]` of each group, ascending, `count` in all.

    A group of `groups [tokens]`, ascending from 0, keeps as many as its share of the tokens is of
    `count`, rounded so that neighbours make up for it.
    """
    order = scores.argsort(descending=True)
    order = order[groups[order].argsort(stable=True)]  # group by group, the largest first
    sizes = groups.bincount()  # [groups]
    ends = sizes.cumsum(0)
    quotas = (ends * count // len(scores)).diff(prepend=ends.new_zeros(1))
    within = torch.arange(len(scores), device=scores.device) - (ends - sizes)[groups]
    return order[within < quotas[groups]].sort().values


def groups_of(visual: Tensor, frames: Tensor) -> Tensor:
    """Returns number of the frame or picture of each visual token, ascending from 0, `[tokens]`.

    Args:
        visual: `[width]` bool.
        frames: frame of each token of the prompt, -1 where it is of none, `[width]`. Tokens of
            pictures are of none; what stands between two pictures parts them.
    """
    places = visual.nonzero()[:, 0]
    new = (places.diff() != 1) | (frames[places].diff() != 0)
    return torch.cat([new.new_zeros(1), new]).cumsum(0)


def closings(visual: Tensor, frames: Tensor) -> Tensor:
    """Returns which visual tokens close a video and show none of it, bool `[tokens]`: a single
    token of no frame right behind one of a frame, such as LLaVA-OneVision's newline. Arguments are
    those of `groups_of`."""
    groups, frame_ids = groups_of(visual, frames), frames[visual]
    places = visual.nonzero()[:, 0]
    result = torch.zeros_like(frame_ids, dtype=torch.bool)
    result[1:] = (places.diff() == 1) & (frame_ids[:-1] >= 0) & (frame_ids[1:] < 0)
    return result & (groups.bincount()[groups] == 1)


def rank(
    criterion: Criterion, ratio: float, first: Tensor, last: Tensor, visual: Tensor,
    frames: Tensor | None = None, minimum: int = 0,
) -> Tensor:  # fmt: skip
    """Returns indices, among the visual tokens, of those kept by a criterion, ascending.

    What closes a video (`closings`) is kept before all that it competes with: a draft that was
    trained with it loses words that need no pixels where it is missing.

    Args:
        criterion: `uv-prune`, whose tokens all compete; `uv-prune-by-frame`; or, to compare with,
            `uniform`, which takes evenly spread ones.
        ratio: share that is pruned (alpha).
        first, last: states before the decoder and after layer L, `[width, hidden]`.
        visual: `[width]` bool.
        frames: as of `groups_of`; by default the prompt has no video.
        minimum: so many are kept at least, unless `ratio` is 1.
    """
    tokens = int(visual.sum())
    count = keep_count(tokens, ratio)
    if ratio < 1:
        count = max(count, min(minimum, tokens))
    if count == tokens:
        return torch.arange(tokens, device=visual.device)
    frames = torch.full_like(visual, -1, dtype=torch.long) if frames is None else frames
    closing = closings(visual, frames)
    if criterion == "uniform":
        visible, fixed = (~closing).nonzero()[:, 0], closing.nonzero()[:, 0][:count]
        chosen = uniform(len(visible), count - len(fixed), visual.device)
        return torch.cat([visible[chosen], fixed]).sort().values
    scores = similarity_variation(first, last, visual).masked_fill(closing, torch.inf)
    if criterion == "uv-prune":
        return scores.topk(count).indices.sort().values  # eq. 4
    return top_by_frame(scores, count, groups_of(visual, frames))


LINE = 1
"""Height of a frame or picture whose grid is unknown: its tokens stand in one line."""


VisualGrids = tuple[tuple[int, int], ...]
"""What one prompt shows, as a model lays it out: `(height, width)` in tokens of each frame or
picture, in the order of the prompt."""


def views(adapter: Adapter, inputs: Mapping[str, Any], copies: int = 1) -> list[VisualGrids]:
    """Returns what each prompt of a batch shows a model, `copies` times each.

    Grids are those of the processor (`image_grid_thw`, `video_grid_thw`). Without them, a square
    number of tokens is a square; LLaVA-OneVision's pooled frames are. Everything else, such as
    tiles with a newline behind each line, stands in one line.
    """
    visual, frames = adapter.visual_tokens(inputs), adapter.packed_frames(inputs)
    by_kind = {True: _grids(adapter, inputs, "video"), False: _grids(adapter, inputs, "image")}
    result = []
    for row_visual, row_frames in zip(visual.cpu(), frames.cpu(), strict=True):
        sizes = groups_of(row_visual, row_frames).bincount().tolist() if row_visual.any() else []
        places = row_visual.nonzero()[:, 0]
        grids, begin = [], 0
        for size in sizes:
            in_video = int(row_frames[places[begin]]) >= 0
            grids.append(_grid(size, next(by_kind[in_video], None)))
            begin += size
        result += [tuple(grids)] * copies
    return result


def _grids(adapter: Adapter, inputs: Mapping[str, Any], kind: str) -> Iterator[tuple[int, int]]:
    """Grids of all frames of videos, or of all pictures, as a processor describes them."""
    grids: Any = inputs.get(f"{kind}_grid_thw")
    vision: Any = getattr(getattr(adapter.model, "config", None), "vision_config", None)
    merge = getattr(vision, "spatial_merge_size", None)
    if grids is not None and merge:
        for time, height, width in grids.tolist():
            yield from [(height // merge, width // merge)] * time


def _grid(size: int, shape: tuple[int, int] | None) -> tuple[int, int]:
    """Returns the grid of a frame of `size` tokens: `shape` if it fits, a square, or a line."""
    if shape is not None and shape[0] * shape[1] == size:
        return shape
    side = isqrt(size)
    return (side, side) if side * side == size else (LINE, size)


def match(indices: Tensor, target: VisualGrids, draft: VisualGrids) -> Tensor:
    """Returns the draft's visual tokens that show what the target's kept ones show, ascending.

    Along each axis the finer grid's centres decide: where the draft has more lines than the target,
    all whose centre lies in a kept line stand for it; where it has fewer, the one that holds the
    kept line's centre. So about the same share of the picture is kept.

    Args:
        indices: ascending indices among the target's visual tokens, `[kept]`.
        target, draft: of the same prompt.
    """
    if target == draft:
        return indices
    if not target or not draft:  # one of them only reads
        return indices[:0]
    sizes = [height * width for height, width in target]
    mask = torch.zeros(sum(sizes))
    mask[indices.to(mask.device)] = 1
    seen = mask.split(sizes)
    frames = _overlap(len(target), len(draft))  # [draft frames, target frames]
    result = []
    for grid, sources in zip(draft, frames, strict=True):
        coverage = torch.zeros(grid)
        for source in sources.nonzero()[:, 0].tolist():
            coverage += _carried(seen[source], target[source], grid)
        result.append(coverage.flatten() > 0)
    return torch.cat(result).nonzero()[:, 0].to(indices.device)


def _carried(seen: Tensor, grid: tuple[int, int], onto: tuple[int, int]) -> Tensor:
    """A frame's kept tokens, `[height * width]`, on another grid: positive where they lie."""
    if LINE in (grid[0], onto[0]):  # of one of the two the lines are not known
        line = _overlap(len(seen), onto[0] * onto[1]) @ seen
        return line.view(onto)
    lines, columns = _overlap(grid[0], onto[0]), _overlap(grid[1], onto[1])
    return lines @ seen.view(grid) @ columns.T


def _overlap(size: int, onto: int) -> Tensor:
    """Returns which of `onto` equal parts stand for which of `size`, 1 where, `[onto, size]`."""
    fine = torch.arange(max(size, onto))
    coarse = (2 * fine + 1) * min(size, onto) // (2 * max(size, onto))  # holds the finer's centre
    table = torch.zeros(onto, size)
    table[(fine, coarse) if onto >= size else (coarse, fine)] = 1
    return table
