"""Sampling settings as tensors against HF's logits processors, row by row and entry by entry."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation import logits_process as hf

from sooner.decoding.row_sampling import RowSampling
from sooner.decoding.tree import Tree

VOCAB, ROWS, PROMPT = 40, 4, 6
PARENTS = [[-1, -1, 0, 2, 1, 2], [-1, 0, 1, 2, 3], [], [-1, -1, -1]]


def random_sampling(generator: torch.Generator) -> RowSampling:
    """Settings of four rows, about half of them neutral."""

    def some(low: float, high: float, neutral: float) -> Tensor:
        values = low + (high - low) * torch.rand(ROWS, generator=generator)
        return torch.where(torch.rand(ROWS, generator=generator) < 0.5, neutral, values)

    bias = 3 * torch.randn(ROWS, 3, generator=generator)
    bias[0, 2] = 0.0
    ids = torch.stack([torch.randperm(VOCAB, generator=generator)[:3] for _ in range(ROWS)])
    return RowSampling(
        temperature=some(0.3, 2.0, 1.0),
        top_k=some(1, 20, 0).long(),
        top_p=some(0.2, 0.95, 1.0),
        min_p=some(0.01, 0.3, 0.0),
        repetition=some(0.5, 2.0, 1.0),
        presence=some(-1.0, 1.0, 0.0),
        frequency=some(-1.0, 1.0, 0.0),
        bias_ids=ids,
        bias_values=bias,
    )


def by_hf(one: RowSampling, row: int, scores: Tensor, prompt: Tensor, said: list[int]) -> Tensor:
    """Scores `[vocab]` of one entry by HF's processors, and by OpenAI's formula for two of them."""
    scores = scores.clone()
    for index, value in zip(one.bias_ids[row], one.bias_values[row], strict=True):
        scores[index] += value
    ids = torch.cat([prompt, torch.tensor(said, dtype=torch.long)])[None]
    scores = hf.RepetitionPenaltyLogitsProcessor(float(one.repetition[row]))(ids, scores[None])[0]
    for token in set(said):
        scores[token] -= one.frequency[row] * said.count(token)
        scores[token] -= one.presence[row]
    warpers = [hf.TemperatureLogitsWarper(float(one.temperature[row]))]
    if one.top_k[row] > 0:
        warpers.append(hf.TopKLogitsWarper(int(one.top_k[row])))
    if one.top_p[row] < 1:
        warpers.append(hf.TopPLogitsWarper(float(one.top_p[row])))
    if one.min_p[row] > 0:
        warpers.append(hf.MinPLogitsWarper(float(one.min_p[row])))
    return LogitsProcessorList(warpers)(ids, scores[None])[0]


def random_block(generator: torch.Generator) -> tuple[Tree, Tensor, Tensor, list[list[int]]]:
    """Trees, logits, prompts and what each row said; tokens repeat in all of them."""

    def tokens(count: int) -> list[int]:
        return torch.randint(0, 12, (count,), generator=generator).tolist()

    tree = Tree.from_lists([tokens(len(row)) for row in PARENTS], PARENTS)
    logits = 3 * torch.randn(ROWS, 1 + tree.nodes, VOCAB, generator=generator)
    prompts = torch.randint(0, 12, (ROWS, PROMPT), generator=generator)
    return tree, logits, prompts, [tokens(5 * row) for row in range(ROWS)]


def history(prompts: Tensor, said: list[list[int]]) -> tuple[Tensor, Tensor]:
    seen = torch.zeros(ROWS, VOCAB, dtype=torch.bool).scatter(1, prompts, True)
    counts = torch.stack([torch.bincount(torch.tensor(row), minlength=VOCAB) if row
                          else torch.zeros(VOCAB, dtype=torch.long) for row in said])  # fmt: skip
    return seen, counts


@pytest.mark.parametrize("seed", range(40))
def test_scores_are_those_of_hfs_processors(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sampling = random_sampling(generator)
    tree, logits, prompts, said = random_block(generator)
    scores = sampling.scores(logits, tree, *history(prompts, said))
    for row, parents in enumerate(PARENTS):
        paths: list[list[int]] = [[]]
        for node, parent in enumerate(parents):
            paths.append([*paths[parent + 1], int(tree.tokens[row, node])])
        for entry, path in enumerate(paths):
            expected = by_hf(sampling, row, logits[row, entry], prompts[row], said[row] + path)
            assert torch.equal(scores[row, entry].isinf(), expected.isinf()), (row, entry)
            torch.testing.assert_close(scores[row, entry], expected, atol=1e-5, rtol=1e-5)


def test_neutral_settings_change_nothing() -> None:
    tree, logits, prompts, said = random_block(torch.Generator().manual_seed(1))
    scores = RowSampling.neutral(ROWS).scores(logits, tree, *history(prompts, said))
    assert torch.equal(scores, logits)


def test_a_temperature_of_zero_is_greedy_beside_rows_that_draw() -> None:
    tree, logits, prompts, said = random_block(torch.Generator().manual_seed(2))
    cold = replace(RowSampling.neutral(ROWS), temperature=torch.tensor([0.0, 1.0, 0.0, 0.5]))
    p = cold.scores(logits, tree, *history(prompts, said)).softmax(-1)
    for row in (0, 2):
        assert torch.equal(p[row].argmax(-1), logits[row].argmax(-1))
        assert torch.equal(p[row].amax(-1), torch.ones(1 + tree.nodes))
    torch.testing.assert_close(p[1], logits[1].softmax(-1))
    torch.testing.assert_close(p[3], (2 * logits[3]).softmax(-1))
