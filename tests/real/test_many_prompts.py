"""Five hundred real prompts: two real models say what transformers' `generate` says of them.

Rows of a ragged batch are summed in another order than a row alone, so two scores that lie within
rounding of each other may change places. Such a tie is counted; anything else is a bug.
"""

from __future__ import annotations

import copy
from itertools import islice
from pydoc_data.topics import topics
from typing import Any

import pytest
import torch

import sooner
from sooner.checkpoints import installed
from sooner.parity import Parity, compare, end_ids, until_end
from sooner.tasks.loading import load_pair

pytestmark = [pytest.mark.slow, pytest.mark.lab]

PROMPTS, LENGTH, ROWS = 500, 8, 10
HALF_PROMPTS = 50
"""Prompts that are answered in bfloat16, too."""
MOST_TIES = 0.01
WORDS = range(12, 80)


@pytest.fixture(scope="module", params=["smollm2", "gemma3-270m"])
def pair(request: Any) -> Any:
    if request.param not in installed():
        pytest.skip(f"the wheels of {request.param} are not installed")
    return load_pair(request.param, sees=False)


@pytest.fixture(scope="module")
def prompts(pair: Any) -> list[list[int]]:
    """Paragraphs of Python's manual, as ids."""
    paragraphs = (
        " ".join(paragraph.split())
        for text in topics.values()
        for paragraph in text.split("\n\n")
        if len(paragraph.split()) in WORDS
    )
    texts = list(islice(dict.fromkeys(paragraphs), PROMPTS))
    assert len(texts) == PROMPTS
    return pair.target.tokenizer(texts)["input_ids"]


Reference = tuple[list[int], list[torch.Tensor]]


def reference(model: Any, prompt: list[int]) -> Reference:
    """New ids of transformers' own greedy `generate`, and the scores of each, `[vocab]`."""
    ids = torch.tensor([prompt])
    output = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False,
        output_scores=True, return_dict_in_generate=True,
    )  # fmt: skip
    new = until_end(output.sequences[0, len(prompt) :].tolist(), end_ids(model))
    return new, [scores[0] for scores in output.scores]


def answers(model: Any, prompts: list[list[int]], pad: int, method: Any) -> list[list[int]]:
    """New ids of a ragged batch, padded on the left."""
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    lengths = torch.tensor([[len(prompt)] for prompt in prompts])
    mask = (torch.arange(width) >= width - lengths).long()  # [rows, width]
    inputs = {"input_ids": ids, "attention_mask": mask}
    return sooner.generate(model, inputs, method, max_new_tokens=LENGTH).tokens


def check(parities: list[Parity]) -> None:
    bugs = [str(parity) for parity in parities if not parity.ok]
    assert bugs == []
    ties = sum(parity.verdict == "tie" for parity in parities)
    assert ties <= MOST_TIES * len(parities)


def test_prompts_are_answered_as_by_generate(pair: Any, prompts: list[list[int]]) -> None:
    model, pad = pair.target.model, pair.target.tokenizer.pad_token_id or 0
    parities: dict[str, list[Parity]] = {"plain": [], "prompt-lookup": []}
    for start in range(0, PROMPTS, ROWS):
        batch = prompts[start : start + ROWS]
        expected = [reference(model, prompt) for prompt in batch]
        for name, method in (
            ("plain", sooner.Autoregressive()),
            ("prompt-lookup", sooner.PromptLookup(num_draft_tokens=3)),
        ):
            made = answers(model, batch, pad, method)
            parities[name] += [
                compare(ids, row, scores) for (ids, scores), row in zip(expected, made, strict=True)
            ]
    for compared in parities.values():
        check(compared)


def test_a_row_alone_has_the_same_ids(pair: Any, prompts: list[list[int]]) -> None:
    model = pair.target.model
    for prompt in prompts[:: PROMPTS // HALF_PROMPTS]:
        [row] = answers(model, [prompt], 0, sooner.PromptLookup(num_draft_tokens=3))
        assert row == reference(model, prompt)[0]


def test_sixteen_bits_differ_by_ties_alone(pair: Any, prompts: list[list[int]]) -> None:
    model, parities = copy.deepcopy(pair.target.model).to(torch.bfloat16), []
    for prompt in prompts[:: PROMPTS // HALF_PROMPTS]:
        ids, scores = reference(model, prompt)
        [row] = answers(model, [prompt], 0, sooner.PromptLookup(num_draft_tokens=3))
        parities.append(compare(ids, row, [each.bfloat16() for each in scores]))
    assert [str(parity) for parity in parities if not parity.ok] == []
