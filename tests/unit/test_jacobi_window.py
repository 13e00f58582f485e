"""First drafts: copies come from the neighbour that is named, and say that they are certain."""

from __future__ import annotations

import pytest
import torch

from fakes import row_noise
from sooner.engine.grid import GridConstraint, TokenGrid
from sooner.methods.jacobi.couplings import Draws
from sooner.methods.jacobi.window import FILLINGS, JacobiWindow

GRID = TokenGrid(2, 3, codes=(0, 4), frames=2, row_end=4, tail=(5,))
VOCAB, FIRST = 6, [1, 2, 3, 4]


def window(generated: list[int], tokens: list[int], filled: int, size: int) -> JacobiWindow:
    """The places behind `generated`, of which the first `filled` hold `tokens`."""
    place = len(generated)
    places = torch.arange(place, place + size)[None]
    probs = torch.zeros(1, size, VOCAB)
    probs[0, :filled] = 1 / VOCAB
    return JacobiWindow(
        tokens=torch.tensor([tokens + [0] * (size - len(tokens))]),
        probs=probs,
        newest=torch.tensor([[0.0, 0.0, 0.7, 0.0, 0.3, 0.0]]),
        filled=torch.tensor([filled]),
        minimum=filled,
        grid_places=places,
        output=torch.tensor([generated], dtype=torch.long),
        draws=Draws(row_noise(1, seed=3), places[0]),
        constraint=GridConstraint(GRID, VOCAB, torch.device("cpu")),
    )


@pytest.mark.parametrize(
    ("init", "generated", "expected"),
    [
        ("above", FIRST, [1, 2, 3, 4]),
        ("above", [*FIRST, 2], [2, 3, 4]),
        ("left", FIRST, [3, 3, 3, 4]),  # over the row's end; the end itself can't be copied
        ("previous-frame", [*FIRST, 0, 0, 2, 4], [1, 2, 3, 4, 0, 0, 2, 4]),
    ],
)
def test_copies_come_from_the_named_neighbour(
    init: str, generated: list[int], expected: list[int]
) -> None:
    tokens, probs = FILLINGS[init](window(generated, [], 0, len(expected)))
    assert tokens[0].tolist() == expected
    assert torch.allclose(probs.sum(-1), torch.ones(1, len(expected)))
    drawn = probs[0].gather(1, tokens[0, :, None])
    assert (drawn == 1).all(), "a copy was drawn from what has it for certain"


@pytest.mark.parametrize("init", FILLINGS)
def test_every_first_draft_is_allowed_and_possible(init: str) -> None:
    """Also where nothing stands above yet, where the picture ends, and where `newest` has nothing
    that the place allows."""
    for generated in ([], [1], FIRST, [*FIRST, *FIRST, *FIRST]):
        view = window(generated, [], 0, GRID.length - len(generated))
        tokens, probs = FILLINGS[init](view)
        allowed = view.constraint.masks(view.grid_places)
        assert allowed[0].gather(1, tokens[0, :, None]).all()
        assert (probs[0].gather(1, tokens[0, :, None]) > 0).all()
        assert not probs[~allowed].any()
        assert torch.allclose(probs.sum(-1), torch.ones(1, len(tokens[0])))
