"""What processed scores and draws of a wide block take beside them, at a real vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.generation import logits_process as hf

from live_memory import LiveMemory
from sooner.decoding.noise import RowNoise
from sooner.decoding.sampling import Processing
from sooner.decoding.tree import Tree
from sooner.methods.requests import SaidPenalty, asked_rows

ROWS, ENTRIES, VOCAB = 8, 65, 151_936
BLOCK = 4 * ROWS * ENTRIES * VOCAB
"""Bytes of the scores of a block: 301 MiB."""
PART = 160 * 2**20
"""Bytes that the entries which are processed at once may take beside the whole block's."""

PROCESSORS = {
    "none": [],
    "top-p": [hf.TopPLogitsWarper(0.9)],
    "all": [
        hf.SequenceBiasLogitsProcessor([[[3], 1.0]]), hf.RepetitionPenaltyLogitsProcessor(1.2),
        SaidPenalty(0.5, 0.1, 1), hf.TemperatureLogitsWarper(0.7), hf.TopKLogitsWarper(50),
        hf.TopPLogitsWarper(0.9), hf.MinPLogitsWarper(0.1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_wide_block_is_processed_and_drawn_from_a_few_entries_at_a_time(name: str) -> None:
    processors: list[Any] = PROCESSORS[name]
    processing = Processing(
        asked_rows(processors, True, ROWS), prompt=torch.zeros(ROWS, 1, dtype=torch.long)
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        logits = torch.empty(ROWS, ENTRIES, VOCAB, dtype=torch.bfloat16)
        tree = Tree.chain(torch.zeros(ROWS, ENTRIES - 1, dtype=torch.long), [ENTRIES - 1] * ROWS)
        noise = RowNoise.start(7, torch.arange(ROWS))
        with LiveMemory() as memory:
            scores = processing.scores(logits)
            processing.choose(scores, tree, noise)
    whole = 1 if name == "none" else 3 if name == "all" else 2  # fp32, penalised, warped
    assert memory.peak <= whole * BLOCK + PART
    assert memory.largest <= BLOCK
