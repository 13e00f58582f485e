"""When rows end, without any model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MaxLengthCriteria, StoppingCriteria
from transformers.generation.stopping_criteria import EosTokenCriteria

from sooner.engine.hf_border import params_of
from sooner.engine.rows import Rows, Stopping, cut_rows


class Recorder(StoppingCriteria):
    """Ends a row at `last`, and keeps what it was shown."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.seen: list[list[int]] = []

    def __call__(self, input_ids: torch.Tensor, scores: object, **kwargs: object) -> torch.Tensor:
        self.seen.append(input_ids[0].tolist())
        return input_ids[:, -1] == self.last


class OnlyRow(StoppingCriteria):
    """Ends one row of the batch at once, by its index."""

    def __init__(self, row: int) -> None:
        self.row = row

    def __call__(self, input_ids: torch.Tensor, scores: object, **kwargs: object) -> torch.Tensor:
        return torch.arange(len(input_ids)) == self.row


def rows(batch: int = 1) -> Rows:
    return Rows(torch.tensor([[1, 2, 3]] * batch))


def stopping_of(*criteria: Any) -> Stopping:
    """Behind a prompt of three tokens."""
    params = params_of((), criteria, 3, 1)
    return Stopping(params.max_new_tokens, params.stop_token_ids, params.criteria)


def eos(*ids: int) -> EosTokenCriteria:
    return EosTokenCriteria(eos_token_id=torch.tensor(ids))


@pytest.mark.parametrize(
    ("new", "tokens", "ended"),
    [
        ([4, 5], [4, 5], None),
        ([9], [9], "stop"),
        ([4, 9, 5], [4, 9], "stop"),
        ([4, 8, 9], [4, 8], "stop"),
        ([], [], None),
    ],
)
def test_an_end_token_cuts_what_follows_it(
    new: list[int], tokens: list[int], ended: str | None
) -> None:
    assert stopping_of(eos(8, 9)).cut(rows(), 0, new) == (tokens, ended)


@pytest.mark.parametrize(
    ("generated", "new", "tokens", "ended"),
    [
        (0, [4, 5, 6, 7], [4, 5, 6], "length"),
        (1, [4], [4], None),
        (1, [4, 5], [4, 5], "length"),
        (2, [4, 5], [4], "length"),
        (1, [4, 9], [4, 9], "stop"),
    ],
)
def test_the_length_limit_counts_the_padded_prompt(
    generated: int, new: list[int], tokens: list[int], ended: str | None
) -> None:
    batch = rows()
    batch.generated[0] = [4] * generated
    stopping = stopping_of(MaxLengthCriteria(6), eos(9))
    assert stopping.budget(generated) == 3 - generated
    assert stopping.cut(batch, 0, new) == (tokens, ended)


def test_a_custom_criterion_sees_every_prefix_that_plain_decoding_shows_it() -> None:
    recorder, batch = Recorder(last=7), rows()
    batch.generated[0] = [4]
    assert stopping_of(recorder).cut(batch, 0, [5, 6, 7, 8]) == ([5, 6, 7], "stop")
    assert recorder.seen == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]]


def test_a_criterion_that_knows_its_row_finds_it_in_a_batch() -> None:
    batch = rows(3)
    batch.end([True, False, False])  # the last row takes the place of the first
    assert batch.active == [2, 1]
    stopping = stopping_of(OnlyRow(1))
    assert stopping.cut(batch, 0, [5, 6]) == ([5, 6], None)
    assert stopping.cut(batch, 1, [5, 6]) == ([5], "stop")


@pytest.mark.parametrize("seed", range(30))
def test_rows_cut_on_the_device_are_those_cut_on_the_host(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    batch, depth = 8, seed % 5
    drafted = torch.randint(0, 9, (batch, depth), generator=generator)
    accepted = torch.randint(0, depth + 1, (batch,), generator=generator)
    bonus = torch.randint(0, 9, (batch,), generator=generator)
    generated = torch.randint(0, 4, (batch,), generator=generator)
    ends, limit = ((3,), (3, 5), ())[seed % 3], 4
    criteria = [MaxLengthCriteria(3 + limit), *([eos(*ends)] if ends else [])]
    stopping, here = stopping_of(*criteria), rows(batch)
    stop_ids = torch.tensor([[*ends, -1, -1][:2]])
    counts, ended = cut_rows(drafted, accepted, bonus, stop_ids, limit - generated)
    for row in range(batch):
        here.generated[row] = [0] * int(generated[row])
        new = [*drafted[row, : accepted[row]].tolist(), int(bonus[row])]
        tokens, is_over = stopping.cut(here, row, new)
        assert (int(counts[row]), bool(ended[row])) == (len(tokens), bool(is_over)), (
            new,
            generated[row],
        )


def test_rows_have_separate_stop_ids_and_limits() -> None:
    drafted = torch.tensor([[4, 5, 6]] * 4)
    counts, ended = cut_rows(
        drafted,
        torch.tensor([3, 3, 2, 3]),
        torch.tensor([7, 7, 6, 7]),
        torch.tensor([[5, -1], [9, -1], [6, 4], [-1, -1]]),
        torch.tensor([9, 2, 9, 0]),
    )
    assert counts.tolist() == [2, 2, 1, 0]
    assert ended.tolist() == [True] * 4
