"""The places of a picture's tokens, and which ids each place allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .rows import Rows
from .tree import Paths, Tree

CODE, ROW_END = 0, 1
"""Kinds of places; the kind of tail token `i` is `2 + i`."""


@dataclass(frozen=True)
class TokenGrid:
    """How a picture or clip is spelled: codes in raster order, with control tokens between them.

    Attributes:
        height, width: codes of one frame.
        frames: frames of the clip; 1 for a picture.
        codes: ids that stand for a piece of picture, as a half-open range.
        row_end: id that ends every row, if the family has one.
        tail: ids that follow the last row (end of frame, end of image).
        begin: id behind which a picture starts in a text. `None`: all that is generated is picture.
        prefix: places that the end of the prompt fills already, as the first frames of a clip do.
    """

    height: int
    width: int
    codes: tuple[int, int]
    frames: int = 1
    row_end: int | None = None
    tail: tuple[int, ...] = ()
    begin: int | None = None
    prefix: int = 0

    @property
    def row(self) -> int:
        """Returns the positions of one row, its end included."""
        return self.width + (self.row_end is not None)

    @property
    def frame(self) -> int:
        """Returns the positions of one frame."""
        return self.height * self.row

    @property
    def length(self) -> int:
        """Returns the positions of the whole span."""
        return self.frames * self.frame + len(self.tail)

    @property
    def left(self) -> int:
        """Places that are to be generated."""
        return self.length - self.prefix

    def kinds(self) -> Tensor:
        """Returns the kind of each position, `[length]`."""
        kinds = torch.full((self.length,), CODE)
        if self.row_end is not None:
            kinds[self.row - 1 : self.frames * self.frame : self.row] = ROW_END
        for index in range(len(self.tail)):
            kinds[self.frames * self.frame + index] = 2 + index
        return kinds

    def place(self, prefix: Sequence[int], generated: int) -> int:
        """Returns the position of the token after `prefix`; -1 outside a picture.

        Args:
            prefix: prompt and generated tokens of a row.
            generated: how many of them were generated.
        """
        if self.begin is None:
            return self.prefix + generated if generated < self.left else -1
        behind = reversed(prefix[-self.length :])
        return next((back for back, token in enumerate(behind) if token == self.begin), -1)

    def pick_codes(self, tokens: Tensor) -> Tensor:
        """Returns the codes, counted from 0, of whole spans.

        Args:
            tokens: `[rows, length]` ids.

        Returns:
            `[rows, frames, height, width]`.
        """
        places = (self.kinds() == CODE).nonzero()[:, 0]  # in raster order
        codes = tokens[:, places.to(tokens.device)] - self.codes[0]
        return codes.view(-1, self.frames, self.height, self.width)


class GridConstraint:
    """Leaves each place of a picture only the ids that may stand there.

    Args:
        grid: the layout.
        vocab: size of the distributions.
        device: where they live.

    Attributes:
        binds: whether anything is ever forbidden inside a picture.
    """

    def __init__(self, grid: TokenGrid, vocab: int, device: torch.device) -> None:
        self.grid = grid
        outside = 2 + len(grid.tail)
        self.kinds = torch.cat([grid.kinds(), torch.tensor([outside])]).to(device)
        allowed = torch.zeros(outside + 1, vocab, dtype=torch.bool)
        allowed[CODE, grid.codes[0] : grid.codes[1]] = True
        for kind, token in enumerate((grid.row_end, *grid.tail), start=1):
            if token is not None:
                allowed[kind, token] = True
        allowed[outside] = ~allowed[CODE]  # codes mean nothing in a text,
        allowed[outside] |= ~allowed[outside].any()  # if there can be a text at all
        self.allowed = allowed.to(device)  # [kinds, vocab]
        self.binds = not bool(allowed[grid.kinds()].all())

    def roots(self, rows: Rows) -> list[int]:
        """Returns the position of the next token of each active row."""
        looks_back = self.grid.begin is not None  # else a prefix would be built for nothing
        return [
            self.grid.place(rows.prefix(row) if looks_back else (), len(rows.output(row)))
            for row in range(len(rows.active))
        ]

    def masks(self, places: Tensor) -> Tensor:
        """Returns what places allow, `[..., vocab]` bool; -1 and those behind the span are text."""
        inside = (places >= 0) & (places < self.grid.length)
        return self.allowed[self.kinds[torch.where(inside, places, self.grid.length)]]

    def __call__(self, logits: Tensor, rows: Rows, tree: Tree) -> Tensor:
        """Forbid what may not stand behind each block entry, `[rows, entries, vocab]`."""
        roots = torch.tensor(self.roots(rows), device=logits.device)[:, None]
        depths = tree.depths()  # [rows, entries]
        places = torch.where(roots >= 0, roots + depths, -1)
        if self.grid.begin is not None and tree.nodes:  # a drafted token may begin a picture
            begins = Paths.of(tree).above & (tree.tokens == self.grid.begin)[:, None]
            last = (begins * depths[:, None, 1:]).amax(-1)  # [rows, entries], 0 without one
            places = torch.where(last > 0, depths - last, places)
        return logits.masked_fill(~self.masks(places), -torch.inf)
