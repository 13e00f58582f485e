"""Pages as tensors: patches, what each visual token shows, answers and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import render, words, world
from .architecture import MERGE, PATCH
from .page import LABELS, DrawnPage

IGNORE = -100
MARKS = ("", ",", ".")


@dataclass(frozen=True)
class Sheets:
    """Pages of one size.

    Attributes:
        patches: grey, `[pages * patches, PATCH * PATCH]`, in the processor's order; all channels
            and both frames of the processor's patches are equal to it.
        grid: patches in time, down and across, `[pages, 3]`.
        words: token of the word that begins in each visual token, `[pages, cells]`; the image
            token's own id where none does.
        previous: visual token of the word read before that one; `IGNORE` where there is none.
        marks: punctuation behind the word, index into `MARKS`, `[pages, cells]`.
        labels: its region's, 1 + index into `LABELS`; 0 where no word begins.
    """

    patches: Tensor
    grid: Tensor
    words: Tensor
    previous: Tensor
    marks: Tensor
    labels: Tensor


@dataclass(frozen=True)
class PageAnswer:
    """A page's Markdown in tokens.

    Attributes:
        ids: tokens, the end token last.
        cells: visual token of the word that each stands for; `IGNORE` for structure.
    """

    ids: list[int]
    cells: list[int]


@dataclass(frozen=True)
class PageRows:
    """Token rows as the chat template lays them out, padded on the right.

    Attributes:
        ids, labels: `[rows, length]`.
        positions: M-RoPE's, `[3, rows, length]`.
        here: visual token of the last word said so far, `[rows, length]`, or `IGNORE`.
        next: visual token of the word to be said next, `[rows, length]`, or `IGNORE`.
        image: place of the first visual token.
        begin: place of the last prompt token, which says the first of the answer.
    """

    ids: Tensor
    labels: Tensor
    positions: Tensor
    here: Tensor
    next: Tensor
    image: int
    begin: int


def to_patches(pictures: np.ndarray) -> Tensor:
    """uint8 `[pages, height, width]` to grey patches `[pages * patches, PATCH * PATCH]`."""
    unit = torch.from_numpy(pictures).float() / 127.5 - 1
    pages, height, width = unit.shape
    side = PATCH * MERGE
    split = unit.view(pages, height // side, MERGE, PATCH, width // side, MERGE, PATCH)
    return split.permute(0, 1, 4, 2, 5, 3, 6).reshape(-1, PATCH * PATCH)


class PageRowWriter:
    """Makes training rows out of pages."""

    def __init__(self) -> None:
        self.tokenizer = words.build_tokenizer()
        self.vocabulary = {token: index for index, token in enumerate(words.vocabulary())}
        self.image, self.end = self.vocabulary[words.IMAGE], self.vocabulary[words.END]
        self.pad = self.vocabulary[words.PAD]
        self.head = self._ids(f"{words.START}user\n{words.VISION_START}")
        self.prompts = [self._ids(prompt) for prompt in words.PROMPTS]
        self.close = self._ids(words.VISION_END)
        self.tail = self._ids(f"{words.END}\n{words.START}assistant\n")

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def sheets(self, pages: Sequence[DrawnPage], rng: np.random.Generator) -> Sheets:
        """Draw `pages`, all of one size, and say what their visual tokens show."""
        pictures = np.stack([render.vary(render.draw(page), rng) for page in pages])
        rows, columns = pages[0].rows, pages[0].columns
        size = (len(pages), rows * columns)
        arrays = {
            "words": np.full(size, self.image),
            "previous": np.full(size, IGNORE),
            "marks": np.zeros(size, np.int64),
            "labels": np.zeros(size, np.int64),
        }
        for number, page in enumerate(pages):
            last = IGNORE
            for region in page.regions:
                for word in region.words:
                    cell = number, word.row * columns + word.column
                    arrays["words"][cell] = self.vocabulary[word.text]
                    arrays["previous"][cell] = last
                    arrays["marks"][cell] = MARKS.index(word.mark)
                    arrays["labels"][cell] = 1 + LABELS.index(region.label)
                    last = cell[1]
        grid = torch.tensor([[1, rows * MERGE, columns * MERGE]] * len(pages))
        tensors = {name: torch.from_numpy(part).long() for name, part in arrays.items()}
        return Sheets(to_patches(pictures), grid, **tensors)

    def answer(self, page: DrawnPage) -> PageAnswer:
        """The tokens of a page's Markdown."""
        placed = page.words
        ids, cells = [], []
        for piece, at in page.pieces:
            ids.append(self.vocabulary[piece])
            word = placed[at] if at is not None else None
            cells.append(IGNORE if word is None else word.row * page.columns + word.column)
        return PageAnswer([*ids, self.end], [*cells, IGNORE])

    def prompt(self, rng: np.random.Generator, cells: int) -> list[int]:
        """Everything in front of the answer."""
        question = self.prompts[rng.integers(len(self.prompts))]
        return [*self.head, *[self.image] * cells, *self.close, *question, *self.tail]

    def rows(
        self, rng: np.random.Generator, answers: Sequence[PageAnswer], rows: int, columns: int
    ) -> PageRows:
        """Answers behind one prompt, on pages of `rows` x `columns` visual tokens."""
        before = self.prompt(rng, rows * columns)
        length = len(before) + max(len(answer.ids) for answer in answers)
        shape = (len(answers), length)
        ids = torch.full(shape, self.pad)
        labels, here, following = (torch.full(shape, IGNORE) for _ in range(3))
        for row, answer in enumerate(answers):
            stop = len(before) + len(answer.ids)
            ids[row, :stop] = torch.tensor([*before, *answer.ids])
            labels[row, len(before) : stop] = torch.tensor(answer.ids)
            last, coming = _pointers(answer.cells)
            here[row, len(before) : stop] = torch.tensor(last)
            following[row, len(before) - 1 : stop - 1] = torch.tensor(coming)
        places = positions(len(self.head), rows, columns, length)[:, None].expand(-1, *shape)
        return PageRows(ids, labels, places, here, following, len(self.head), len(before) - 1)


def _pointers(cells: Sequence[int]) -> tuple[list[int], list[int]]:
    """For each token the last word's cell up to it, and the next word's from it on."""
    here, last = [], IGNORE
    for cell in cells:
        last = cell if cell != IGNORE else last
        here.append(last)
    coming, after = [], IGNORE
    for cell in reversed(cells):
        after = cell if cell != IGNORE else after
        coming.append(after)
    return here, coming[::-1]


def positions(head: int, rows: int, columns: int, length: int) -> Tensor:
    """M-RoPE positions `[3, length]`: text, one picture of `rows` x `columns` tokens, text."""
    down = torch.arange(rows).repeat_interleave(columns) + head
    across = torch.arange(columns).repeat(rows) + head
    picture = torch.stack([torch.full_like(down, head), down, across])
    first = head + max(rows, columns)
    rest = torch.arange(length - head - rows * columns) + first
    return torch.cat([torch.arange(head).expand(3, -1), picture, rest.expand(3, -1)], dim=1)


def sample_pages(rng: np.random.Generator, count: int, rows: int, columns: int) -> list[DrawnPage]:
    """`count` pages of one size."""
    return [world.sample_page(rng, rows, columns) for _ in range(count)]
