"""Batches of demonstrations as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sooner.models.openvla.statistics import ActionTokens

from ...robots import METAWORLD
from . import words
from .architecture import GRID, PATCH
from .collect import NAMES

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
INSTRUCTIONS = {
    "reach": "reach the red ball",
    "push": "push the block to the green ball",
    "drawer-open": "open the drawer",
    "table": "reach the blue ball",
}


@dataclass(frozen=True)
class DemonstrationBatch:
    """Demonstrations of one instruction length each side padded.

    Attributes:
        ids: prompt and action tokens, `[rows, width]`, padding in front.
        mask: 1 on real tokens, `[rows, width]`.
        pixels: `[rows, 6, 112, 112]`.
        bins: what to say, `[rows, 8]`: bins of the actions.
        actions: normalised, `[rows, 8]`.
        patches: patch of each half that shows hand, object and goal, `[rows, 2, 3]`; -1 where it
            lies outside.
        offsets: where in that patch, `[rows, 2, 3, 2]` in [-0.5, 0.5].
    """

    ids: Tensor
    mask: Tensor
    pixels: Tensor
    bins: Tensor
    actions: Tensor
    patches: Tensor
    offsets: Tensor


def pixels(pictures: np.ndarray) -> Tensor:
    """uint8 `[rows, side, side, 3]` to `[rows, 6, side, side]`: DINOv2's channels, SigLIP's."""
    unit = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(part)[None, :, None, None] for part in IMAGENET)
    return torch.cat([(unit - mean) / std, (unit - 0.5) / 0.5], dim=1)


class Reader:
    """Makes batches out of records.

    Args:
        records: from `collect.load`.
        stats: the actions' statistics (`architecture.statistics`).
    """

    def __init__(self, records: dict[str, np.ndarray], stats: dict) -> None:
        self.records = records
        self.tokens = ActionTokens(words.TEXT + words.ACTIONS, words.ACTIONS)
        low, high = np.array(stats["q01"]), np.array(stats["q99"])
        actions = records["actions"].astype(np.float64)  # [records, horizon, dims]
        span = np.where(stats["mask"], high - low, 1.0)  # what is not scaled may have no span
        scaled = np.where(stats["mask"], 2 * (actions - low) / span - 1, actions)
        self.actions = np.clip(scaled, -1, 1).reshape(len(actions), -1).astype(np.float32)
        self.ids = self.tokens.encode(self.actions)  # [records, 8]
        tokenizer = words.build_tokenizer()
        self.prompts = [
            prompt_ids(tokenizer(words.PROMPT.format(instruction=INSTRUCTIONS[name])).input_ids)
            for name in NAMES
        ]

    def __len__(self) -> int:
        return len(self.ids)

    def batch(
        self, index: np.ndarray, rng: np.random.Generator | None = None
    ) -> DemonstrationBatch:
        """The records `index`; with `rng` their light changes a little."""
        pictures = self.records["pictures"][index]
        if rng is not None:
            light = rng.uniform(0.85, 1.15, (len(index), 1, 1, 1)).astype(np.float32)
            pictures = np.clip(pictures * light, 0, 255).astype(np.uint8)
        ids, mask = self._texts(index)
        patches, offsets = _targets(self.records["places"][index])
        answers = torch.from_numpy(self.ids[index])
        return DemonstrationBatch(
            ids, mask, pixels(pictures), self.tokens.bins(answers),
            torch.from_numpy(self.actions[index]), patches, offsets,
        )  # fmt: skip

    def _texts(self, index: np.ndarray) -> tuple[Tensor, Tensor]:
        rows = [
            [*self.prompts[task], *self.ids[record]]
            for task, record in zip(self.records["tasks"][index], index, strict=True)
        ]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        return ids, mask


def prompt_ids(text: list[int], patches: int = GRID**2) -> list[int]:
    """A tokenised prompt with its patches behind the first token and the lone space at its end."""
    space = words.SPECIALS.index(words.SPACE)
    return [text[0], *[words.IMAGE_ID] * patches, *text[1:], space]


def _targets(places: np.ndarray) -> tuple[Tensor, Tensor]:
    """Places `[rows, 2, 3, 2]` in pixels of a half to a patch of the half, and where in it."""
    cells = torch.from_numpy(places) / PATCH
    whole = cells.floor()
    row, column = whole[..., 0], whole[..., 1]
    inside = (row >= 0) & (row < GRID // 2) & (column >= 0) & (column < GRID)
    patches = torch.where(inside, row * GRID + column, -1).long()
    return patches, cells - whole - 0.5


def split(records: dict[str, np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices to learn from, and the last `count` of every task, whose goals nobody has seen."""
    tasks = records["tasks"]
    last = [np.flatnonzero(tasks == task)[-count:] for task in range(len(NAMES))]
    check_ids = np.concatenate(last)
    return np.setdiff1d(np.arange(len(tasks)), check_ids), check_ids


assert set(NAMES) == {*METAWORLD, "table"}
