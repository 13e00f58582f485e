"""Sparse prefills beside everything else: methods, drafts, taps, pruners, sampling."""

from __future__ import annotations

import pytest

import sooner
import tiny_canvas
from method_matrix import METHODS
from sooner.errors import UnsupportedError
from sparse.contexts import FAMILIES, decode, sparse

METHOD_NAMES = (
    "prompt-lookup", "noisy-4", "noisy-auto", "words-only", "parallel", "sd-tree", "onsd",
    "specvlm", "jacobi-4", "sparse-to-dense",
)  # fmt: skip


def cases() -> list[tuple[str, str]]:
    """Every method once, families in turn."""
    return [(method, FAMILIES[i % len(FAMILIES)]) for i, method in enumerate(METHOD_NAMES)]


@pytest.mark.parametrize(("method", "family"), cases())
def test_methods_on_a_sparse_target_have_its_output_alone(method: str, family: str) -> None:
    """Drafts prefill densely, and keys and values of the target are the sparse prefill's."""
    rows = 2
    expected = decode(family, sparse(family), rows=rows)
    made = decode(family, sparse(family), METHODS[method](family), rows=rows)
    assert made.tokens == expected.tokens
    assert made.stats.mode == "approximate"


def test_a_model_without_transformers_attention_is_refused() -> None:
    """Cosmos calls its kernel itself."""
    model = tiny_canvas.cosmos_ar()
    refused = pytest.raises(UnsupportedError, match="AttentionInterface")
    with refused, sooner.MMInference.auto()(model):
        pass
