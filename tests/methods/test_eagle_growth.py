"""Dynamic trees against enumeration, and the choice of their size."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from sooner.methods.eagle.drafter import Growth

VOCAB = 4

Paths = dict[tuple[int, ...], float]


def confidences(seed: int, rows: int, depth: int) -> list[dict[tuple[int, ...], torch.Tensor]]:
    """Log-probabilities behind every path shorter than `depth`, for each row."""
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            path: (2 * torch.randn(VOCAB, generator=generator)).log_softmax(-1)
            for length in range(depth)
            for path in itertools.product(range(VOCAB), repeat=length)
        }
        for _ in range(rows)
    ]


def grow(tables: list[Any], top_k: int, depth: int) -> Growth:
    growth = Growth(top_k, len(tables), torch.device("cpu"))
    frontier: list[list[tuple[int, ...]]] = [[()] for _ in tables]
    for _ in range(depth):
        rows = [torch.stack([table[path] for path in paths]) for table, paths in zip(
            tables, frontier, strict=True
        )]  # fmt: skip
        growth.extend(*torch.stack(rows).topk(min(top_k, VOCAB)))
        front = growth.frontier
        frontier = [
            [
                (*paths[parent], token)
                for parent, token in zip(parents, tokens, strict=True)
            ]
            for paths, parents, tokens in zip(
                frontier, front.parents.tolist(), front.tokens.tolist(), strict=True
            )
        ]  # fmt: skip
    return growth


def paths_in_order(tree: Any, row: int) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens[row].tolist(), tree.parents[row].tolist(), strict=True):
        paths.append((*(() if parent < 0 else paths[parent]), token))
    return paths[: tree.sizes[row]]


def literal(table: dict[tuple[int, ...], torch.Tensor], top_k: int, depth: int) -> Paths:
    """Candidates by the words of the paper, one node at a time."""
    values: Paths = {}
    level: Paths = {(): 0.0}
    for _ in range(depth):
        best = sorted(level, key=lambda path: -level[path])[:top_k]
        level = {}
        for path in best:
            value = values.get(path, 0.0)
            likely = table[path].topk(min(top_k, VOCAB))
            for more, token in zip(likely.values.tolist(), likely.indices.tolist(), strict=True):
                level[(*path, token)] = value + more
        values |= level
    return values


@pytest.mark.parametrize(
    ("top_k", "depth", "nodes"), [(1, 4, 3), (2, 4, 6), (3, 4, 11), (3, 2, 50)]
)
@pytest.mark.parametrize("seed", range(3))
def test_expansion_and_ranking_equal_those_of_the_paper(
    top_k: int, depth: int, nodes: int, seed: int
) -> None:
    tables = confidences(seed, 2, depth)
    tree = grow(tables, top_k, depth).best(nodes, [depth] * 2, False)
    for row, table in enumerate(tables):
        values = literal(table, top_k, depth)
        expected = sorted(values, key=lambda path: -values[path])[:nodes]
        assert set(paths_in_order(tree, row)) == set(expected)
