"""Grids against literal spelling, and what their constraint leaves at each place."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from sooner.engine.grid import GridConstraint, TokenGrid
from sooner.engine.rows import Rows
from sooner.engine.tree import Tree

VOCAB, LOW, HIGH, EOL, EOF, EOI, BOI = 40, 10, 30, 31, 32, 33, 34


@st.composite
def grids(draw: st.DrawFn) -> TokenGrid:
    height, width, frames = (draw(st.integers(1, 4)) for _ in range(3))
    grid = TokenGrid(
        height,
        width,
        codes=(LOW, HIGH),
        frames=frames,
        row_end=draw(st.sampled_from([None, EOL])),
        tail=draw(st.sampled_from([(), (EOI,), (EOF, EOI)])),
    )
    prefix = draw(st.integers(0, frames - 1)) * grid.frame
    return TokenGrid(**{**grid.__dict__, "prefix": prefix})


def spelled(grid: TokenGrid, codes: torch.Tensor) -> list[int]:
    """A picture written out token by token; `codes [frames, height, width]` count from 0."""
    tokens = []
    for frame in codes.tolist():
        for line in frame:
            tokens += [LOW + code for code in line]
            tokens += [] if grid.row_end is None else [grid.row_end]
    return [*tokens, *grid.tail]


def picture(grid: TokenGrid, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (grid.frames, grid.height, grid.width)
    return torch.randint(0, HIGH - LOW, shape, generator=generator)


@given(grids())
def test_a_spelled_picture_fills_the_grid_and_is_read_back(grid: TokenGrid) -> None:
    pictures = [picture(grid, seed) for seed in range(2)]
    spans = [spelled(grid, codes) for codes in pictures]
    assert {len(span) for span in spans} == {grid.length}
    assert torch.equal(grid.pick_codes(torch.tensor(spans)), torch.stack(pictures))
    assert grid.left == grid.length - grid.prefix


@given(grids())
def test_each_place_allows_what_is_spelled_there_and_no_other_kind(grid: TokenGrid) -> None:
    masks = GridConstraint(grid, VOCAB, torch.device("cpu")).masks(torch.arange(grid.length))
    marks = (grid.row_end, *grid.tail)
    for token, mask in zip(spelled(grid, picture(grid)), masks.tolist(), strict=True):
        allowed = [id for id in range(VOCAB) if mask[id]]
        assert allowed == ([token] if token in marks else list(range(LOW, HIGH)))


@given(grids(), st.integers(0, 3))
def test_in_a_text_a_picture_is_located_by_its_beginning(grid: TokenGrid, words: int) -> None:
    grid = TokenGrid(**{**grid.__dict__, "prefix": 0, "begin": BOI})
    tokens = [1] * words + [BOI] + spelled(grid, picture(grid)) + [1, 1]
    places = [grid.place(tokens[:count], count) for count in range(len(tokens) + 1)]
    assert places == [*[-1] * (1 + words), *range(grid.length), -1, -1, -1]


@given(grids(), st.data())
def test_a_drafted_prefix_is_masked_as_the_same_text_would_be(
    grid: TokenGrid, data: st.DataObject
) -> None:
    grid = TokenGrid(**{**grid.__dict__, "prefix": 0, "begin": BOI})
    constraint = GridConstraint(grid, VOCAB, torch.device("cpu"))
    texts = st.lists(st.sampled_from([1, LOW, EOL, BOI]), max_size=6)
    rows, drafts = Rows(torch.zeros(1, 1, dtype=torch.long)), data.draw(texts)
    rows.generated = [data.draw(texts)]
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(len(drafts))]
    masks = constraint(torch.zeros(1, 1 + len(drafts), VOCAB), rows,
                       Tree.from_lists([drafts], [parents]))[0]  # fmt: skip
    paths: list[list[int]] = [[]]
    for token, parent in zip(drafts, parents, strict=True):
        paths.append([*paths[1 + parent], token])
    for path, mask in zip(paths, masks, strict=True):
        place = grid.place([0, *rows.generated[0], *path], len(rows.generated[0]) + len(path))
        assert torch.equal(mask == 0, constraint.masks(torch.tensor(place)))


def test_a_block_is_masked_depth_by_depth() -> None:
    grid = TokenGrid(2, 2, codes=(LOW, HIGH), row_end=EOL, tail=(EOI,))
    rows = Rows(torch.zeros(2, 1, dtype=torch.long))
    rows.generated = [[LOW], [LOW, LOW, EOL, LOW, LOW]]
    tree = Tree.chain(torch.full((2, 2), LOW), [2, 1])
    constraint = GridConstraint(grid, VOCAB, torch.device("cpu"))
    seen = constraint(torch.zeros(2, 3, VOCAB), rows, tree) == 0  # [rows, entries, vocab]
    kinds = [[sorted(entry.nonzero()[:, 0].tolist()) for entry in row] for row in seen]
    codes = list(range(LOW, HIGH))
    assert kinds[0] == [codes, [EOL], codes]
    assert kinds[1][:2] == [[EOL], [EOI]]
