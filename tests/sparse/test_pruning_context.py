"""A pruner is a context: nothing of it is left behind, and it says what it did."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

import sooner
import tiny
from sooner.decoding.runner import ModelRunner
from sooner.errors import SoonerError, UnsupportedError
from sooner.models import adapt
from sooner.sparse.pruning import PRUNERS, Pruner, at_retention
from sooner.sparse.pruning.stage import Kept

FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
LAYERS = 6
NONE: dict[str, Pruner] = {
    "fastv": sooner.FastV(ratio=0.0),
    "sparse-vlm": sooner.SparseVLM(ratio=0.0),
    "pyramid-drop": sooner.PyramidDrop(ratio=0.0),
    "dycoke": sooner.DyCoke(ratio=0.0, decode_ratio=0.0),
}
SOME: dict[str, Pruner] = {
    "fastv": sooner.FastV(ratio=0.7),
    "sparse-vlm": sooner.SparseVLM(ratio=0.7, recycle=0.4, pool=0.5),
    "pyramid-drop": sooner.PyramidDrop(ratio=0.5),
    "dycoke-merging": sooner.DyCoke(ratio=0.6, decode_ratio=0.0),
    "dycoke": sooner.DyCoke(ratio=0.6, decode_ratio=0.5, layer=2),
}
BLOCKS = [name for name in SOME if name != "dycoke"]


def model_of(family: str) -> Any:
    return tiny.model(family, layers=LAYERS)


def hooks(model: nn.Module) -> int:
    """All hooks of a model; transformers has a few of its own on some, from the first run on."""
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def decode(family: str, pruner: Pruner | None, method: Any = None, **options: Any) -> Any:
    inputs = options.pop("inputs", None) or tiny.inputs(family, "video")
    options = {"max_new_tokens": 13, "eos_token_id": None, **options}
    return sooner.generate(model_of(family), inputs, method, prefill=pruner, **options)


@pytest.mark.parametrize("name", NONE)
@pytest.mark.parametrize("family", FAMILIES)
def test_ratio_zero_is_plain_decoding(family: str, name: str) -> None:
    for kind in ("video", "mixed", "text"):
        inputs = tiny.inputs(family, kind)
        plain = decode(family, None, inputs=inputs)
        pruned = decode(family, NONE[name], inputs=inputs)
        assert pruned.tokens == plain.tokens
        assert pruned.stats.mode == "exact"
        assert pruned.stats.cache_bytes == plain.stats.cache_bytes


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_pruned_run_is_marked_and_holds_less(family: str, name: str) -> None:
    plain, pruned = decode(family, None), decode(family, SOME[name])
    assert pruned.stats.mode == "approximate"
    assert plain.stats.mode == "exact"
    assert any(type(SOME[name]).__name__ in note for note in pruned.stats.notes)
    assert pruned.stats.cache_bytes < plain.stats.cache_bytes


def test_the_cache_holds_just_what_is_kept() -> None:
    """Six layers of 17 visual tokens: two of them whole, four with 20 %."""
    plain = decode("llava_onevision", None).stats.cache_bytes
    pruned = decode("llava_onevision", sooner.FastV(ratio=0.8)).stats.cache_bytes
    slot = 2 * 2 * 12 * 4  # keys and values, heads, head_dim, bytes
    assert plain - pruned == 4 * (17 - 3) * slot


@pytest.mark.parametrize("name", SOME)
def test_a_prompt_without_pixels_is_left_alone(name: str) -> None:
    inputs = tiny.inputs("qwen2_5_vl", "text")
    assert decode("qwen2_5_vl", SOME[name], inputs=inputs).stats.mode == "exact"


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_after_the_context(family: str, name: str) -> None:
    model, before = model_of(family), decode(family, None).tokens
    usual = hooks(model)
    with SOME[name](model):
        assert hooks(model) > usual
        options = {"max_new_tokens": 5, "custom_generate": sooner.Autoregressive()}
        model.generate(**tiny.inputs(family, "video"), **options)
    assert hooks(model) == usual
    assert decode(family, None).tokens == before


class _Broken(sooner.FastV):
    """Fails in the middle of a prefill."""

    def keep(self, stage: Any) -> Kept:
        raise ZeroDivisionError("broken on purpose")


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_after_exceptions(family: str) -> None:
    model, before = model_of(family), decode(family, None).tokens
    usual = hooks(model)
    with pytest.raises(ZeroDivisionError):
        decode(family, _Broken())
    assert hooks(model) == usual
    with pytest.raises(KeyboardInterrupt), SOME["dycoke"](model):
        raise KeyboardInterrupt
    assert hooks(model) == usual
    with pytest.raises(SoonerError, match="6 layers"), sooner.FastV(layer=6)(model):
        pass
    assert hooks(model) == usual
    assert decode(family, None).tokens == before


def test_a_stopped_run_leaves_no_state_for_the_next() -> None:
    """One context, one run that dies after its prefill, and one that does not."""
    model, inputs = model_of("qwen3_vl"), tiny.inputs("qwen3_vl", "video")
    pruner = SOME["dycoke"]
    expected = decode("qwen3_vl", pruner).tokens

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    options = {"max_new_tokens": 13, "eos_token_id": None}
    with pruner(model):
        with pytest.raises(KeyboardInterrupt):
            sooner.generate(model, inputs, on_tokens=stop, **options)
        assert sooner.generate(model, inputs, **options).tokens == expected


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_on_a_pruned_target_says_what_the_pruned_target_says(
    family: str, name: str
) -> None:
    """The draft is not pruned, and its cache has other lengths than the target's."""
    expected = decode(family, SOME[name])
    for method in (
        sooner.Speculative(tiny.noisy(family), num_draft_tokens=4),
        sooner.PromptLookup(num_draft_tokens=3, max_ngram=1),
    ):
        actual = decode(family, SOME[name], method)
        assert actual.tokens == expected.tokens
        assert actual.stats.mode == "approximate"


@pytest.mark.parametrize("name", SOME)
def test_eager_attention_prunes_alike(name: str) -> None:
    for family in FAMILIES:
        model = copy.deepcopy(model_of(family))
        model.set_attn_implementation("eager")
        inputs, options = tiny.inputs(family, "video"), {"max_new_tokens": 9, "eos_token_id": None}
        actual = sooner.generate(model, inputs, prefill=SOME[name], **options)
        assert actual.tokens == decode(family, SOME[name], max_new_tokens=9).tokens


def test_a_padded_prompt_prunes_like_the_same_one_without_padding() -> None:
    for family in FAMILIES:
        inputs = tiny.inputs(family, "video")
        padded = dict(inputs)
        for name, filler in (("input_ids", tiny.PAD), ("attention_mask", 0)):
            padded[name] = nn.functional.pad(inputs[name], (3, 0), value=filler)
        if "mm_token_type_ids" in inputs:
            padded["mm_token_type_ids"] = nn.functional.pad(inputs["mm_token_type_ids"], (3, 0))
        for pruner in SOME.values():
            expected = decode(family, pruner).tokens
            assert decode(family, pruner, inputs=padded).tokens == expected


def test_dycoke_compares_frames_of_one_video_only() -> None:
    """Of an image nothing is merged, and DyCoke says so by staying exact."""
    inputs = tiny.inputs("qwen2_5_vl", "images")
    pruner = sooner.DyCoke(ratio=0.6, decode_ratio=0.0)
    assert decode("qwen2_5_vl", pruner, inputs=inputs).stats.mode == "exact"


@pytest.fixture
def pruning() -> Iterator[Any]:
    model = model_of("qwen2_5_vl")
    with sooner.FastV()(model):
        yield model


def test_a_batch_is_refused_by_name(pruning: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"FastV prunes one prompt.*3 rows.*one by one"):
        sooner.generate(pruning, tiny.inputs("qwen2_5_vl", "video", 3), max_new_tokens=3)


def test_plain_generate_is_refused_and_not_silently_unpruned(pruning: Any) -> None:
    inputs = tiny.inputs("qwen2_5_vl", "video")
    with pytest.raises(UnsupportedError, match="custom_generate="):
        pruning.generate(**inputs, max_new_tokens=3)
    with pytest.raises(UnsupportedError, match="custom_generate="):
        pruning(**inputs)


def test_two_pruners_at_once_are_refused(pruning: Any) -> None:
    before = hooks(pruning)
    with pytest.raises(UnsupportedError, match="already prunes"), sooner.DyCoke()(pruning):
        pass
    assert hooks(pruning) == before


def test_choosing_anew_at_each_token_refuses_drafts() -> None:
    method = sooner.Speculative(tiny.noisy("qwen2_5_vl"), num_draft_tokens=4)
    with pytest.raises(UnsupportedError, match="decode_ratio=0"):
        decode("qwen2_5_vl", SOME["dycoke"], method)


def test_ranking_a_draft_behind_dropped_tokens_is_refused() -> None:
    draft = tiny.noisy("qwen2_5_vl")
    fine = sooner.ParallelVLM(draft, least=0, layer=1, placement="inline", num_draft_tokens=4)
    expected = decode("qwen2_5_vl", SOME["fastv"]).tokens
    assert decode("qwen2_5_vl", SOME["fastv"], fine).tokens == expected
    late = sooner.ParallelVLM(draft, least=0, layer=4, placement="inline", num_draft_tokens=4)
    with pytest.raises(UnsupportedError, match="earlier layer"):
        decode("qwen2_5_vl", SOME["fastv"], late)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sooner.FastV(ratio=1.2), "ratio is 1.2"),
        (lambda: sooner.FastV(layer=0), "layer is 0"),
        (lambda: sooner.FastV(layer=True), "layer is True"),
        (lambda: sooner.PyramidDrop(layers=(0, 3)), "layers is 0"),
        (lambda: sooner.SparseVLM(pool=-1), "pool is -1"),
        (lambda: sooner.DyCoke(threshold=2), "threshold is 2"),
        (lambda: sooner.DyCoke(layer=-1), "layer is -1"),
    ],
)
def test_values_out_of_range_are_refused(make: Any, words: str) -> None:
    with pytest.raises(SoonerError, match=words):
        make()


def test_a_mean_retention_can_be_asked_for() -> None:
    """Table 2's 10 % on 80 layers, and the error where early layers see too much."""
    for pruner in (sooner.FastV(), sooner.SparseVLM(), sooner.PyramidDrop(layers=(4, 20, 40))):
        assert at_retention(pruner, 0.1, 80).retention(80) == pytest.approx(0.1, abs=1e-6)
    assert sooner.FastV(ratio=0.5, layer=2).retention(4) == 0.75
    assert sooner.PyramidDrop(ratio=0.5).retention(8) == pytest.approx((1 + 0.5 + 0.25 + 0.125) / 4)
    with pytest.raises(SoonerError, match="out of reach"):
        at_retention(sooner.PyramidDrop(), 0.1, 8)


@pytest.mark.parametrize("layers", [22, 28, 32, 80])
@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("kind", PRUNERS.values(), ids=lambda kind: kind.name)
def test_every_pruner_keeps_what_is_asked_for(
    kind: type[Pruner], share: float, layers: int
) -> None:
    """Table 2 holds all at one retention; DyCoke reaches 10 % by what it lays aside in decoding."""
    pruner = kind().for_retention(share, layers)
    assert pruner.decode_retention(layers) == pytest.approx(share, abs=1e-6)
    if share == 0.1 and kind is sooner.DyCoke:
        assert pruner.retention(layers) == pytest.approx(0.25)
    else:
        assert pruner.retention(layers) == pytest.approx(pruner.decode_retention(layers), rel=0.7)
    pruner.check_depth(layers)
    assert len(pruner.stages(layers)) == len(kind().stages(layers))
    assert list(pruner.stages(layers)) <= list(kind().stages(layers))


@pytest.mark.parametrize("kind", PRUNERS.values(), ids=lambda kind: kind.name)
def test_what_is_asked_for_is_what_runs(kind: type[Pruner]) -> None:
    """The mean over layers of the visual tokens that a real run holds, beside the stated one."""
    family, share = "qwen2_5_vl", 0.5
    model, inputs = model_of(family), tiny.inputs(family, "video")
    adapter = adapt(model)
    pruner = kind().for_retention(share, adapter.layers)
    visual = int(adapter.visual_tokens(inputs).sum())
    text = inputs["input_ids"].shape[1] - visual
    with pruner(model):
        held = prefilled(model, inputs)
    seen = [(length - text) / visual for length in held]
    assert sum(seen) / len(seen) == pytest.approx(
        pruner.retention(adapter.layers), abs=1.5 / visual
    )


def prefilled(model: Any, inputs: dict[str, Any]) -> list[int]:
    """Prompt tokens that each layer holds after a prefill."""
    adapter = adapt(model)
    prompt = adapter.embed_prompt(inputs)
    runner = ModelRunner(adapter, prompt.width + 4)
    runner.prefill(prompt)
    return [prompt.width - layer.dropped for layer in runner.cache.slot_layers]


def test_the_registry_names_all() -> None:
    assert set(PRUNERS) == {"FastV", "SparseVLM", "PyramidDrop", "DyCoke"}
    assert all(pruner.mode == "approximate" for pruner in PRUNERS.values())


def test_sampling_on_a_pruned_target_repeats_with_a_seed() -> None:
    options = {"do_sample": True, "seed": 5, "temperature": 0.8}
    first, second = (decode("qwen3_vl", SOME["fastv"], **options).tokens for _ in range(2))
    assert first == second
