"""The lossless baselines of ParallelVLM's table 1 say what `generate` says."""

from __future__ import annotations

from typing import Any

import pytest

import method_matrix as matrix
import sooner
import tiny
from methods.baselines import METHODS, NEW, PLACES, VISUAL, generate


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("family", "kind", "rows"), PLACES)
def test_ids_equal_generates(family: str, kind: str, rows: int, name: str) -> None:
    made = generate(METHODS[name](family), family, kind, rows)
    assert made.sequences.tolist() == matrix.reference(family, kind, rows, NEW).tolist()


@pytest.mark.parametrize("family", tiny.TEXT_FAMILIES)
@pytest.mark.parametrize("name", METHODS)
def test_text_targets_are_exact_too(name: str, family: str) -> None:
    made = generate(METHODS[name](family), family, "text", 3)
    assert made.sequences.tolist() == matrix.reference(family, "text", 3, NEW).tolist()


@pytest.mark.parametrize("new", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("name", METHODS)
def test_the_length_limit_cuts_a_draft(name: str, new: int) -> None:
    made = generate(METHODS[name]("qwen3_vl"), "qwen3_vl", "uneven", 3, new)
    assert made.sequences.tolist() == matrix.reference("qwen3_vl", "uneven", 3, new).tolist()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("at", [0, 1, 3, 5, 8])
def test_an_end_inside_a_draft_ends_the_row(name: str, at: int) -> None:
    family, kind = "qwen2_5_vl", "uneven"
    width = tiny.inputs(family, kind, 3)["input_ids"].shape[1]
    end = matrix.reference(family, kind, 3, matrix.LONG)[1, width + at].item()
    expected = matrix.reference(family, kind, 3, matrix.LONG, end)
    made = generate(METHODS[name](family), family, kind, 3, matrix.LONG, eos_token_id=end)
    assert made.sequences.tolist() == expected.tolist()


PROCESSORS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.4},
    "no-repeat": {"no_repeat_ngram_size": 2, "min_new_tokens": 9},
    "leash": {
        "prefix_allowed_tokens_fn": lambda row, ids: [
            token for token in range(90) if (token + row + int(ids[-1])) % 7 == 0
        ]
    },
    # Three tokens are wanted below a node where one is allowed, and a child that is not allowed
    # must never become a prefix: the grammar has no answer for it.
    "narrow": {
        "prefix_allowed_tokens_fn": lambda row, ids: (
            [(int(ids[-1]) + 1) % 80] if int(ids[-1]) != 85 else []
        )
    },
}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("options", PROCESSORS.values(), ids=PROCESSORS)
def test_processors_that_read_the_prefix_are_honoured(options: dict, rows: int) -> None:
    family, kind = "qwen2_5_vl", "image"
    expected = matrix.reference.__wrapped__(family, kind, rows, NEW, **options)
    for name in ("sd-tree", "sd-tree-wide", "specvlm", "onsd", "sparse-to-dense"):
        made = generate(METHODS[name](family), family, kind, rows, **options)
        assert made.sequences.tolist() == expected.tolist(), name


@pytest.mark.parametrize("name", ["sd-tree", "specvlm", "onsd", "sparse-to-dense"])
def test_generate_takes_them_as_its_loop(name: str) -> None:
    family = "llava_onevision"
    ids = tiny.model(family).generate(
        **tiny.inputs(family, "video", 2),
        custom_generate=METHODS[name](family),
        max_new_tokens=NEW,
        eos_token_id=None,
    )
    assert ids.tolist() == matrix.reference(family, "video", 2, NEW).tolist()


@pytest.mark.parametrize("family", VISUAL)
def test_eager_attention_is_exact_too(family: str) -> None:
    model, inputs = tiny.eager(family), tiny.inputs(family, "uneven", 3)
    options = {"max_new_tokens": NEW, "eos_token_id": None, "do_sample": False}
    expected = model.generate(**inputs, **options)
    for name in ("sd-tree", "specvlm", "sparse-to-dense"):
        made = sooner.generate(model, inputs, METHODS[name](family), **options)
        assert made.sequences.tolist() == expected.tolist(), name
