"""Trees that runs draft, beside those of the literature, computed anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sooner.engine.interface import Outcome
from sooner.engine.tree import Tree
from sooner.methods.eagle.method import EagleDrafter

Path = tuple[int, ...]


def paths_of(tree: Tree, row: int) -> list[Path]:
    """Tokens from the root to each node, in the order of the nodes."""
    paths: list[Path] = []
    parents, tokens = tree.parents[row].tolist(), tree.tokens[row].tolist()
    for node in range(int(tree.sizes[row])):
        above = () if parents[node] < 0 else paths[parents[node]]
        paths.append((*above, tokens[node]))
    return paths


def texts_of(inputs: dict[str, Tensor], rows: Any) -> list[Tensor]:
    """Prompt and output of each active row, without padding."""
    prompts = [ids[mask.bool()] for ids, mask in zip(*inputs.values(), strict=True)]
    return [torch.cat([prompts[row], torch.tensor(rows.generated[row])]) for row in rows.active]


def record_trees(
    monkeypatch: pytest.MonkeyPatch, inputs: dict[str, Tensor]
) -> list[tuple[list[Tensor], Tree, list[int]]]:
    """Returns what EAGLE drafts from now on: texts, the tree behind them and its levels."""
    seen: list[tuple[list[Tensor], Tree, list[int]]] = []
    draft = EagleDrafter.draft

    def spy(self: EagleDrafter, outcome: Outcome) -> Tree:
        tree = draft(self, outcome)
        seen.append((texts_of(inputs, outcome.rows), tree, self.levels))
        return tree

    monkeypatch.setattr(EagleDrafter, "draft", spy)
    return seen


def literal_tree(
    log_probabilities: Callable[[Path], Tensor], depth: int, top_k: int, nodes: int
) -> set[Path]:
    """Paths of a dynamic tree, by the words of EAGLE-2's paper.

    Args:
        log_probabilities: of the tokens behind a path, `[vocab]`.
    """
    values: dict[Path, float] = {}
    level: dict[Path, float] = {(): 0.0}
    for _ in range(depth):
        children = {}
        for path in sorted(level, key=lambda path: -level[path])[:top_k]:
            best = log_probabilities(path).topk(top_k)
            for value, token in zip(*(part.tolist() for part in best), strict=True):
                children[(*path, token)] = level[path] + value
        values |= children
        level = children
    return set(sorted(values, key=lambda path: -values[path])[:nodes])
