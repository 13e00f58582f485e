"""What streams tokens hears through both doors what `generate` tells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.generation.streamers import BaseStreamer

import sooner
import tiny
from methods.doors import FAMILY, GREEDY, KIND, both_doors, decode


class Recorder(BaseStreamer):
    """Keeps every call, as a list of token ids or the word `end`."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.calls.append(value.tolist())

    def end(self) -> None:
        self.calls.append("end")


@both_doors
def test_a_streamer_is_called_just_as_by_generate(door: str, method: sooner.Method) -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    reference, ours = Recorder(), Recorder()
    tiny.model(FAMILY).generate(**inputs, **GREEDY, streamer=reference)
    decode(door, method, inputs, **GREEDY, streamer=ours)
    assert ours.calls == reference.calls
    assert ours.calls[0] == inputs["input_ids"].tolist()
    assert ours.calls[-1] == "end"


@both_doors
def test_a_streamer_gets_nothing_after_an_end_inside_a_draft(door: str) -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    end = free[0, inputs["input_ids"].shape[1] + 5].item()
    options = {**GREEDY, "eos_token_id": end}
    reference, ours = Recorder(), Recorder()
    tiny.model(FAMILY).generate(**inputs, **options, streamer=reference)
    itself = sooner.Speculative(tiny.model(FAMILY), num_draft_tokens=8)
    decode(door, itself, inputs, **options, streamer=ours)
    assert ours.calls == reference.calls


@both_doors
def test_a_streamer_for_several_rows_is_refused(door: str) -> None:
    with pytest.raises(sooner.UnsupportedError, match="2 rows"):
        decode(door, sooner.Autoregressive(), tiny.inputs(FAMILY, KIND, 2), **GREEDY,
               streamer=Recorder())  # fmt: skip


def test_a_streamer_of_an_outer_generate_is_not_used() -> None:
    """A streamer is looked for in the caller's frame: only that of this very call counts."""
    inner = []

    class Nosy(Recorder):
        def put(self, value: torch.Tensor) -> None:
            super().put(value)
            if not inner:
                inner.append(1)
                decode("custom_generate", sooner.PromptLookup(), tiny.inputs(FAMILY), **GREEDY)

    reference, ours, inputs = Recorder(), Nosy(), tiny.inputs(FAMILY, KIND)
    tiny.model(FAMILY).generate(**inputs, **GREEDY, streamer=reference)
    decode("custom_generate", sooner.Autoregressive(), inputs, **GREEDY, streamer=ours)
    assert ours.calls == reference.calls


@both_doors
def test_on_tokens_tells_every_token_of_every_row_once_and_in_order(
    door: str, method: sooner.Method
) -> None:
    inputs, received = tiny.inputs(FAMILY, KIND, 3), [[], [], []]
    drafted_counts = []

    def tell(row: int, tokens: list[int], drafted: int) -> None:
        received[row] += tokens
        drafted_counts.append((drafted, len(tokens)))

    free = decode(door, method, inputs, **GREEDY, on_tokens=tell)
    assert received == free[:, inputs["input_ids"].shape[1] :].tolist()
    assert all(drafted in (count, count - 1) for drafted, count in drafted_counts)
