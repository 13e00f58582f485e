"""Training rows of the world of marks: a caption and eight questions packed behind one clip.

A row is a *prefix* (the chat's head and the clip) and *segments* behind it, each a request, an
answer and its end. A segment sees the prefix and itself, never another's request or answer, and its
positions go on from the prefix, as if it stood there alone.

A short clip's frames are frames of a long one: each keeps the position that it would have there. So
the distances of 64 frames are learnt from clips of four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..video import words
from ..video.data import IGNORE
from . import architecture, world

QUESTIONS = 8
SEEN = {*world.GLYPHS, *world.ROWS, *world.COLUMNS}
"""Words of an answer that need the pixels."""


@dataclass(frozen=True)
class Segment:
    """Token ids of one request as the chat template lays it out, and of its answer with an end.

    `need` tells which tokens of the answer need the pixels.
    """

    request: list[int]
    answer: list[int]
    need: list[bool]

    @property
    def ids(self) -> list[int]:
        return [*self.request, *self.answer]


@dataclass(frozen=True)
class PackedRows:
    """Rows of equal layout.

    Attributes:
        ids: of all segments, [rows, text].
        labels: the ids of answers at their own places, else `IGNORE`, [rows, text].
        need: which of them need the pixels, bool [rows, text].
        places: within their segment, [text].
        owner: number of the segment of each token, [text].
    """

    ids: torch.Tensor
    labels: torch.Tensor
    need: torch.Tensor
    places: torch.Tensor
    owner: torch.Tensor


class PackedRowWriter:
    """Token rows as the chat template and the processor lay them out."""

    def __init__(self) -> None:
        self.tokenizer = words.build_tokenizer(architecture.vocabulary())
        self.start, self.end = self._ids(words.START)[0], self._ids(words.END)[0]
        self.video = self._ids(words.VIDEO)[0]
        self.head = [self.start, *self._ids("user")]
        self.tail = [self.end, self.start, *self._ids("assistant")]

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def caption(self, clip: world.MarkClip, prompt: str = architecture.PROMPT) -> Segment:
        answer = [*self._ids(world.caption(clip)), self.end]
        return Segment([*self._ids(prompt), *self.tail], answer, world.needs_pixels().tolist())

    def question(self, asked: world.MarkQuestion) -> Segment:
        answer = [*self._ids(asked.answer), self.end]
        words = asked.answer.split()
        need = [word in SEEN for word in words] + [False]
        return Segment([*self._ids(asked.text), *self.tail], answer, need)

    def write(
        self,
        rng: np.random.Generator,
        clips: Sequence[world.MarkClip],
        questions: int = QUESTIONS,
        caption: bool = True,
        where: bool = True,
    ) -> PackedRows:
        """A row for each clip: its caption, then `questions` about it; one prompt a batch."""
        prompt = architecture.PROMPTS[rng.integers(len(architecture.PROMPTS))]
        rows = []
        for clip in clips:
            asked = world.sample_questions(rng, clip, questions, where)
            first = [self.caption(clip, prompt)] if caption else []
            rows.append([*first, *map(self.question, asked)])
        return pack(rows)


def pack(rows: Sequence[Sequence[Segment]]) -> PackedRows:
    """Rows of segments as tensors.

    Raises:
        ValueError: rows whose segments differ in length.
    """
    sizes = [len(segment.ids) for segment in rows[0]]
    if any([len(segment.ids) for segment in row] != sizes for row in rows):
        raise ValueError(f"segments of all rows need the first row's lengths, {sizes}")
    ids = torch.tensor([[token for one in row for token in one.ids] for row in rows])
    labels, need = torch.full_like(ids, IGNORE), torch.zeros_like(ids, dtype=torch.bool)
    for index, row in enumerate(rows):
        begin = 0
        for one in row:
            told = slice(begin + len(one.request), begin + len(one.ids))
            labels[index, told] = torch.tensor(one.answer)
            need[index, told] = torch.tensor(one.need)
            begin += len(one.ids)
    places = torch.cat([torch.arange(size) for size in sizes])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return PackedRows(ids, labels, need, places, owner)


def sees(rows: PackedRows, prefix: int) -> torch.Tensor:
    """What each token of the text attends to: bool [text, prefix + text]."""
    same = rows.owner[:, None] == rows.owner[None, :]  # [text, text]
    return torch.cat([same.new_ones(len(same), prefix), same.tril()], dim=1)


def prefix_positions(head: int, slots: np.ndarray) -> tuple[torch.Tensor, int]:
    """Positions of a row's prefix [prefix], and the first one of its segments.

    Args:
        head: tokens before the video.
        slots: the frames that are shown, among those of a long clip, ascending [frames].
    """
    cells = head + slots[:, None] * world.CELLS + np.arange(world.CELLS)  # [frames, 64]
    newline = head + world.FRAMES * world.CELLS
    found = np.concatenate([np.arange(head), cells.ravel(), [newline]])
    return torch.from_numpy(found), newline + 1
