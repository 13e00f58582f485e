"""The lossless baselines of ParallelVLM's table 1, and a run of one on a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sooner
import tiny
from sooner.methods.base import Method
from sooner.methods.onsd import OnSD
from sooner.methods.sd_tree import SDTree
from sooner.methods.sparse_to_dense import SparseToDense
from sooner.methods.specvlm import SpecVLM
from sooner.methods.tree_draft import STATIC_TREE

NEW = 20
VISUAL = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
WIDE = ((3,), (2, 1, 1), (1, 1), (2,))

METHODS: dict[str, Callable[[str], Method]] = {
    "sd-tree": lambda family: SDTree(tiny.noisy(family), STATIC_TREE),
    "sd-tree-wide": lambda family: SDTree(tiny.noisy(family), branching=WIDE),
    "sd-tree-itself": lambda family: SDTree(tiny.model(family), STATIC_TREE),
    "sd-tree-words": lambda family: SDTree(tiny.model("llama", seed=3), branching=WIDE),
    "sd-tree-repadded": lambda family: SDTree(tiny.repadded(family, tiny.VOCAB + 32), STATIC_TREE),
    "onsd": lambda family: OnSD(tiny.noisy(family), 5),
    "onsd-llama": lambda family: OnSD(tiny.model("llama", seed=3), 5),
    "specvlm": lambda family: SpecVLM(tiny.noisy(family), STATIC_TREE, prune=0.5),
    "specvlm-words": lambda family: SpecVLM(tiny.model("llama", seed=3), branching=WIDE),
    "specvlm-most": lambda family: SpecVLM(
        tiny.noisy(family), STATIC_TREE, prune=0.9, layers=1, focus=1.0
    ),
    "sparse-to-dense": lambda family: SparseToDense(prune=0.5, num_draft_tokens=4),
    "sparse-to-dense-most": lambda family: SparseToDense(9),
}


def generate(
    method: Method, family: str, kind: str, rows: int, new: int = NEW, **options: Any
) -> sooner.Generation:
    options = {"eos_token_id": None, "do_sample": False, **options}
    inputs = tiny.inputs(family, kind, rows)
    return sooner.generate(tiny.model(family), inputs, method, max_new_tokens=new, **options)
