"""Which of a draft's visual tokens show what some of the target's show.

Both models see the same frames and pictures in the same order, each in a grid of its own. A token
is matched along three axes, frame, line and column, by where its centre lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from ..engine.interface import AdapterLike
from .pruning import groups_of

LINE = 1
"""Height of a frame or picture whose grid is unknown: its tokens stand in one line."""


@dataclass(frozen=True)
class VisualGrids:
    """What one prompt shows, as a model lays it out.

    Attributes:
        grids: `(height, width)` in tokens of each frame or picture, in the order of the prompt.
    """

    grids: tuple[tuple[int, int], ...]


def views(adapter: AdapterLike, inputs: Mapping[str, Any], copies: int = 1) -> list[VisualGrids]:
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
        result += [VisualGrids(tuple(grids))] * copies
    return result


def _grids(adapter: AdapterLike, inputs: Mapping[str, Any], kind: str) -> Iterator[tuple[int, int]]:
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
    """Returns the draft's visual tokens that show what the target's kept ones show.

    Along each axis the finer grid's centres decide: where the draft has more lines than the target,
    all whose centre lies in a kept line stand for it; where it has fewer, the one that holds the
    kept line's centre. So about the same share of the picture is kept.

    Args:
        indices: ascending indices among the target's visual tokens, `[kept]`.
        target, draft: of the same prompt.

    Returns:
        Ascending indices among the draft's visual tokens.
    """
    if target == draft:
        return indices
    if not target.grids or not draft.grids:  # one of them only reads
        return indices[:0]
    sizes = [height * width for height, width in target.grids]
    mask = torch.zeros(sum(sizes))
    mask[indices.to(mask.device)] = 1
    seen = mask.split(sizes)
    frames = _overlap(len(target.grids), len(draft.grids))  # [draft frames, target frames]
    result = []
    for grid, sources in zip(draft.grids, frames, strict=True):
        coverage = torch.zeros(grid)
        for source in sources.nonzero()[:, 0].tolist():
            coverage += _carried(seen[source], target.grids[source], grid)
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
