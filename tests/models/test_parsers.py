"""Document parsers that transformers holds, in a smaller matrix than that of `tiny.FAMILIES`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import tiny
from method_matrix import LONG, Case
from methods.test_exactness import check
from models.test_tree_forward import ROOTS, TREES, close, incremental, path_to, prefilled
from sooner.models import FAMILIES

SMALL = [family for family in tiny.PARSERS if family not in tiny.FAMILIES]
SEEING = [family for family in SMALL if family != "deepseek_ocr2"]
METHODS_HERE = ("plain", "prompt-lookup", "noisy-4", "words-only", "sd-tree", "specvlm",
                "sparse-to-dense", "eagle", "hsd-wide", "hsd")  # fmt: skip


def kinds(family: str) -> tuple[str, ...]:
    return tiny.kinds(family) if family in SEEING else ("text",)


CASES = [
    Case(family, method, kinds(family)[(i + j) % len(kinds(family))], 1 + (i + j) % 3, LONG,
         ("session", "custom_generate")[j % 2], ends=(i + j) % 2 == 0)
    for i, family in enumerate(SMALL)
    for j, method in enumerate(METHODS_HERE)
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_greedy_ids_equal_those_of_generate(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("family", SMALL)
@torch.no_grad()
def test_every_path_of_ragged_trees_equals_incremental_decoding(family: str) -> None:
    kind = kinds(family)[-1]
    runner, prompt = prefilled(family, kind)
    first = runner.prefill(prompt)
    forward = runner.forward_tree(ROOTS, TREES)
    nodes = [path_to(TREES, row, size - 1) for row, size in enumerate(TREES.sizes)]
    length = max(map(len, nodes))
    sequences = [
        [int(ROOTS[row]), *TREES.tokens[row, path].tolist(), *[1] * (length - len(path))]
        for row, path in enumerate(nodes)
    ]
    expected = incremental(family, kind, sequences)
    close(first.logits[:, 0], expected[:, 0])
    for row, path in enumerate(nodes):
        entries = [0, *[node + 1 for node in path]]
        close(forward.logits[row, entries], expected[row, 1 : 1 + len(entries)])


def test_published_types_have_an_adapter(tmp_path: Path) -> None:
    """By the type that a checkpoint's config says."""
    for family in tiny.PARSERS:
        tiny.model(family).config.save_pretrained(tmp_path)
        model_type = json.loads((tmp_path / "config.json").read_text())["model_type"]
        assert model_type == family
        assert model_type in FAMILIES
