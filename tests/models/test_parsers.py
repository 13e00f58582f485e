"""Document parsers that transformers holds, in a smaller matrix than that of `tiny.FAMILIES`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny
from method_matrix import LONG, Case
from methods.test_exactness import check
from models.test_tree_forward import SMALL, parser_kinds
from sooner.models import FAMILIES

METHODS_HERE = ("plain", "prompt-lookup", "noisy-4", "words-only", "sd-tree", "eagle",
                "hsd-wide", "hsd")  # fmt: skip


CASES = [
    Case(family, method, kinds[(i + j) % len(kinds)], 1 + (i + j) % 3, LONG,
         ("session", "custom_generate")[j % 2], ends=(i + j) % 2 == 0)
    for i, (family, kinds) in enumerate((family, parser_kinds(family)) for family in SMALL)
    for j, method in enumerate(METHODS_HERE)
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_greedy_ids_equal_those_of_generate(case: Case) -> None:
    check(case)


def test_published_types_have_an_adapter(tmp_path: Path) -> None:
    """By the type that a checkpoint's config says."""
    for family in tiny.PARSERS:
        tiny.model(family).config.save_pretrained(tmp_path)
        model_type = json.loads((tmp_path / "config.json").read_text())["model_type"]
        assert model_type == family
        assert model_type in FAMILIES
