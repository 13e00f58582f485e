"""A pruner is a context: nothing of it is left behind, and it says what it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import sooner
import tiny
from recorders import hook_count
from sooner.engine.cache import SlotCache
from sooner.engine.loop import run
from sooner.engine.row_sampling import SamplingParams
from sooner.errors import SoonerError, UnsupportedError
from sooner.sparse.pruning import Pruner
from sooner.sparse.pruning.stage import Selection

FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
LAYERS = 6
FASTV = sooner.FastV(ratio=0.7)


def model_of(family: str) -> Any:
    return tiny.model(family, layers=LAYERS)


def decode(family: str, pruner: Pruner | None, method: Any = None, **options: Any) -> Any:
    inputs = options.pop("inputs", None) or tiny.inputs(family, "video")
    options = {"max_new_tokens": 13, "eos_token_id": None, **options}
    return sooner.generate(model_of(family), inputs, method, prefill=pruner, **options)


def is_marked_and_holds_less(family: str, pruner: Pruner) -> None:
    plain, pruned = decode(family, None), decode(family, pruner)
    assert pruned.stats.mode == "approximate"
    assert plain.stats.mode == "exact"
    assert any(pruner.name in note for note in pruned.stats.notes)
    assert pruned.stats.cache_bytes < plain.stats.cache_bytes


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pruned_run_is_marked_and_holds_less(family: str) -> None:
    is_marked_and_holds_less(family, FASTV)


def test_a_prompt_without_pixels_is_left_alone() -> None:
    inputs = tiny.inputs("qwen2_5_vl", "text")
    assert decode("qwen2_5_vl", FASTV, inputs=inputs).stats.mode == "exact"


class _Broken(sooner.FastV):
    """Fails in the middle of a prefill."""

    def keep(self, stage: Any) -> Selection:
        raise ZeroDivisionError("broken on purpose")


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_after_exceptions(family: str) -> None:
    model, before = model_of(family), decode(family, None).tokens
    usual = hook_count(model)
    with pytest.raises(ZeroDivisionError):
        decode(family, _Broken())
    assert hook_count(model) == usual
    with pytest.raises(KeyboardInterrupt), FASTV(model):
        raise KeyboardInterrupt
    assert hook_count(model) == usual
    with pytest.raises(SoonerError, match="6 layers"), sooner.FastV(layer=6)(model):
        pass
    assert hook_count(model) == usual
    assert decode(family, None).tokens == before


def speculation_changes_nothing(family: str, pruner: Pruner) -> None:
    """The draft is not pruned, and its cache has other lengths than the target's."""
    expected = decode(family, pruner)
    for method in (
        sooner.Speculative(tiny.noisy(family), num_draft_tokens=4),
        sooner.PromptLookup(num_draft_tokens=3, max_ngram=1),
    ):
        actual = decode(family, pruner, method)
        assert actual.tokens == expected.tokens
        assert actual.stats.mode == "approximate"


@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_has_the_output_of_the_pruned_target(family: str) -> None:
    speculation_changes_nothing(family, FASTV)


def padding_changes_nothing(family: str, pruner: Pruner) -> None:
    inputs = tiny.inputs(family, "video")
    padded = dict(inputs)
    for name, filler in (("input_ids", tiny.PAD), ("attention_mask", 0)):
        padded[name] = nn.functional.pad(inputs[name], (3, 0), value=filler)
    if "mm_token_type_ids" in inputs:
        padded["mm_token_type_ids"] = nn.functional.pad(inputs["mm_token_type_ids"], (3, 0))
    assert decode(family, pruner, inputs=padded).tokens == decode(family, pruner).tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_prompt_prunes_as_without_padding(family: str) -> None:
    padding_changes_nothing(family, FASTV)


@pytest.fixture
def pruning() -> Iterator[Any]:
    model = model_of("qwen2_5_vl")
    with sooner.FastV()(model):
        yield model


def test_a_batch_is_refused_by_name(pruning: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"FastV prunes one prompt.*3 rows.*one by one"):
        sooner.generate(pruning, tiny.inputs("qwen2_5_vl", "video", 3), max_new_tokens=3)


def test_a_prompt_that_is_split_before_the_context_is_refused() -> None:
    model, inputs = model_of("qwen2_5_vl"), tiny.inputs("qwen2_5_vl", "video")
    params = SamplingParams(max_new_tokens=3)
    session = sooner.Autoregressive().session(model, inputs, params, prefill_chunk=5)
    with pytest.raises(UnsupportedError, match="enter the context before"), FASTV(model):
        run(session)


def test_plain_generate_is_refused_and_not_silently_unpruned(pruning: Any) -> None:
    inputs = tiny.inputs("qwen2_5_vl", "video")
    with pytest.raises(UnsupportedError, match="custom_generate="):
        pruning.generate(**inputs, max_new_tokens=3)
    with pytest.raises(UnsupportedError, match="custom_generate="):
        pruning(**inputs)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sooner.FastV(ratio=1.2), "ratio is 1.2"),
        (lambda: sooner.FastV(layer=0), "layer is 0"),
        (lambda: sooner.FastV(layer=True), "layer is True"),
    ],
)
def test_values_out_of_range_are_refused(make: Any, words: str) -> None:
    with pytest.raises(SoonerError, match=words):
        make()


CAPACITY = 24


def entries(first: int, count: int, rows: int = 1) -> torch.Tensor:
    """Numbered states, `[rows, 1, count, 1]`."""
    return torch.arange(first, first + count).float().view(1, 1, -1, 1).expand(rows, -1, -1, -1)


@given(st.data())
def test_a_shorter_layer_follows_every_move(data: st.DataObject) -> None:
    """Blocks, trees whose paths are gathered, and rollbacks; layer 0 is whole, layer 1 is not."""
    width = data.draw(st.integers(2, 8))
    gone = data.draw(st.integers(1, width - 1))
    cache = SlotCache(2, CAPACITY)
    cache.slot_layers[1].dropped = gone
    cache.update(entries(0, width), entries(100, width), 0)
    cache.update(entries(gone, width - gone), entries(100 + gone, width - gone), 1)
    cache.set_lengths([width])
    fresh = 1000
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()) and cache.longest > width:
            cache.set_lengths([data.draw(st.integers(width, cache.longest))])
            continue
        block = data.draw(st.integers(1, 4))
        if cache.longest + block > CAPACITY:
            continue
        seen = [cache.update(entries(fresh, block), entries(-fresh, block), n) for n in (0, 1)]
        for whole, short in zip(*seen, strict=True):
            assert torch.equal(whole[:, :, gone:], short)
        branches = st.sets(st.integers(1, block - 1)) if block > 1 else st.just(set())
        path = [0, *sorted(data.draw(branches))]
        cache.commit_path(torch.tensor([path[1:]]).long(), torch.tensor([len(path)]), False)
        cache.note_commit([len(path)])
        fresh += block
    first, second = cache.slot_layers
    for whole, short in zip(first.stores, second.stores, strict=True):
        assert torch.equal(whole[:, :, gone : cache.longest], short[:, :, : cache.longest - gone])
    assert second.get_mask_sizes(2) == (first.get_mask_sizes(2)[0] - gone, 0)
    assert second.keys.shape[2] == CAPACITY + 1 - gone, "a trash slot lies behind them"
