"""Sparse prefills inside models: the definition is met, decoding is unchanged, no hook is left."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import sooner
import tiny
from method_matrix import METHODS
from recorders import hook_count
from sooner import MMInference
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.errors import SoonerError, UnsupportedError
from sooner.models import adapt
from sooner.sparse.attention import Reference, States, sparse_attention
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape, Dense, Grid, QBoundary
from sooner.sparse.plane import whole
from sooner.sparse.prefill.forward_context import of_call, recall
from sooner.sparse.prefill.report import LayerReport, PrefillReport
from sooner.sparse.search import Search, SearchSample, SearchSettings
from sparse_attention.contexts import FAMILIES, STATIC, decode, mask_of, prompt_of, sparse


@contextmanager
def masked(model: Any, masks: Tensor) -> Iterator[None]:
    """Every layer of an eager model's decoder under `masks [rows, heads, tokens, tokens]`."""
    additive = torch.zeros(masks.shape).masked_fill(~masks, torch.finfo(torch.float32).min)

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> tuple:
        return args, {**kwargs, "attention_mask": additive}

    layers = model.get_decoder().layers
    handles = [
        layer.self_attn.register_forward_pre_hook(enter, with_kwargs=True) for layer in layers
    ]
    yield
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_eager_attention_under_the_patterns_masks(family: str) -> None:
    inputs, model = prompt_of(family, rows=2), tiny.model(family)
    layouts = of_call(adapt(model), inputs)
    assert layouts is not None
    anything = torch.zeros(len(layouts[0]), 4)  # grids ask for states, even with a given stride
    masks = torch.stack(
        [torch.stack([mask_of(p, row, anything, anything) for p in STATIC]) for row in layouts]
    )
    with torch.no_grad():
        with masked(tiny.eager(family), masks):
            expected = tiny.eager(family)(**inputs).logits
        with sparse(family)(model) as report:
            made = model(**inputs).logits
        dense = model(**inputs).logits
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(made[real], expected[real], rtol=1e-4, atol=1e-4)
    assert (made - dense)[real].abs().max() > 0.01  # so the patterns did leave something out
    assert report.last is not None
    assert len(report.last.sparse) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_sooner_s_prefill_has_the_output_of_hf_s(family: str) -> None:
    """Rows are packed here and padded there, so layouts come from two sources."""
    for rows in (1, 3):
        made = decode(family, sparse(family), rows=rows)
        with sparse(family)(tiny.model(family)):
            reference = tiny.model(family).generate(
                **prompt_of(family, rows), max_new_tokens=7, eos_token_id=None, do_sample=False
            )
        assert made.tokens == reference[:, -7:].tolist()
        assert made.stats.mode == "approximate"


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_decoding_is_that_of_the_model_to_the_bit(implementation: str) -> None:
    """Chains, trees and uneven rows behind one and the same cache."""
    model = tiny.model("qwen3_vl") if implementation == "sdpa" else tiny.eager("qwen3_vl")
    adapter = adapt(model)
    tree = Tree(torch.tensor([[1, 2, 3]] * 2), torch.tensor([[-1, -1, 0]] * 2), [3, 3])
    roots = torch.tensor([4, 5])

    def logits(runner: ModelRunner) -> list[Tensor]:
        chain = runner.forward_chain(torch.tensor([[1], [2]])).logits
        return [chain, runner.forward_tree(roots, tree).logits]

    with torch.inference_mode():
        prompt = adapter.embed_prompt(prompt_of("qwen3_vl", rows=2))
        runner = ModelRunner(adapter, prompt.width + 8)
        runner.prefill(prompt)
        expected = logits(runner)
        with sparse("qwen3_vl")(model):
            made = logits(runner)
    assert all(torch.equal(*pair) for pair in zip(made, expected, strict=True))


def test_a_result_tells_its_mode_and_its_recall_on_request() -> None:
    context = sparse("qwen2_5_vl", measure_recall=True)
    with context(tiny.model("qwen2_5_vl")) as report:
        made = decode("qwen2_5_vl", None)
    assert made.stats.mode == "approximate"
    assert report.last is not None
    assert not report.last.is_exact
    assert 0.1 < report.last.recall < 0.99
    assert 0.1 < report.last.flops_share < 0.9
    assert any("MMInference: 3 of 3 layers sparse, recall 0." in note for note in made.stats.notes)
    with sparse("qwen2_5_vl")(tiny.model("qwen2_5_vl")) as report:
        silent = decode("qwen2_5_vl", None)
    assert silent.stats.mode == "approximate"
    assert silent.tokens == made.tokens
    assert report.last is not None
    assert report.last.recall is None
    share = f"{report.last.flops_share:.0%}"
    assert f"MMInference: 3 of 3 layers sparse, {share} of the pairs" in silent.stats.notes


def test_pairs_that_were_not_counted_are_in_no_report() -> None:
    report = PrefillReport((90,), (LayerReport(0, "pattern"), LayerReport(1)))
    assert report.flops_share is None
    assert str(report) == "1 of 2 layers sparse; dense: layers 0 (pattern)"


def test_recall_is_the_attention_under_the_mask() -> None:
    generator = torch.Generator().manual_seed(0)
    layout = PromptLayout.spans(("padding", 5), ("text", 60), ("padding", 3))
    states = States(*(torch.randn(n, 68, 8, generator=generator) for n in (2, 1, 1)), 0.5)
    patterns = [AShape(2, 3), Grid(4, 1)]
    made = sparse_attention(states, layout, patterns, Reference())
    expected = []
    for head, pattern in enumerate(patterns):
        scores = states.queries[head] @ states.keys[0].T * 0.5
        weights = scores.masked_fill(~mask_of(Dense(), layout), -torch.inf)[5:65].softmax(1)
        expected.append((weights * mask_of(pattern, layout)[5:65]).sum(1).mean())
    actual = recall(states, whole(layout), made.lse)
    torch.testing.assert_close(actual, torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_dense_layers_and_short_prompts_run_the_model_s_attention() -> None:
    plain = decode("qwen2_5_vl", None)
    for context, reason in (
        (sparse("qwen2_5_vl", *[Dense()] * 4), "pattern"),
        (sparse("qwen2_5_vl", dense_below=1000), "sparse from 1000 on"),
    ):
        with context(tiny.model("qwen2_5_vl")) as report:
            made = decode("qwen2_5_vl", None)
        assert made.tokens == plain.tokens
        assert made.stats.mode == "exact"
        assert report.last is not None
        assert reason in report.last.layers[0].reason
    short = {"inputs": tiny.inputs("qwen2_5_vl", "text")}
    assert decode("qwen2_5_vl", sparse("qwen2_5_vl"), **short).stats.mode == "exact"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MMInference(mlp_chunk=0), "mlp_chunk is 0"),
        (lambda: MMInference(dense_below=-1), "dense_below is -1"),
    ],
)
def test_values_out_of_range_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(SoonerError, match=words):
        make()


METHOD_NAMES = (
    "prompt-lookup", "noisy-4", "noisy-auto", "words-only", "parallel", "sd-tree", "onsd",
    "jacobi-4",
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


def test_a_model_whose_layers_have_configs_of_their_own_is_refused() -> None:
    """Its attention can't be replaced by one name in one config."""
    model = copy.deepcopy(tiny.model(FAMILIES[0]))
    layer = next(each for each in model.modules() if hasattr(each, "q_proj"))
    layer.config = copy.deepcopy(layer.config)
    refused = pytest.raises(UnsupportedError, match="AttentionInterface")
    with refused, sooner.MMInference.auto()(model):
        pass


def trace(model: nn.Module) -> tuple:
    """All that a context touches."""
    modules = list(model.modules())
    configs = [getattr(m, "config", None) for m in modules]
    names = [getattr(config, "_attn_implementation", None) for config in configs]
    replaced = sum("forward" in m.__dict__ for m in modules)
    tables = (sorted(ALL_ATTENTION_FUNCTIONS), sorted(ALL_MASK_ATTENTION_FUNCTIONS))
    return hook_count(model), names, replaced, tables


class _Broken(Reference):
    name = "broken"

    def attend(self, *args: Any) -> None:
        raise ZeroDivisionError("broken on purpose")


def test_nothing_is_left_even_after_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model("qwen3_vl")
    before, tokens = trace(model), decode("qwen3_vl", None).tokens
    context = sparse("qwen3_vl", mlp_chunk=16)
    with context(model):
        assert trace(model) != before
        decode("qwen3_vl", None)
    assert trace(model) == before
    with pytest.raises(KeyboardInterrupt), context(model):
        raise KeyboardInterrupt
    assert trace(model) == before
    with monkeypatch.context() as patch:
        patch.setattr("sooner.sparse.prefill.context.backend_for", lambda *_: _Broken())
        with pytest.raises(ZeroDivisionError):
            decode("qwen3_vl", context)
    assert trace(model) == before
    assert decode("qwen3_vl", None).tokens == tokens


def test_only_the_wrapped_model_s_decoder_is_touched() -> None:
    model, other = tiny.model("qwen2_5_vl"), tiny.noisy("qwen2_5_vl")
    with sparse("qwen2_5_vl")(model):
        assert model.config.vision_config._attn_implementation == "sdpa"
        assert model.config._attn_implementation == "sdpa"
        assert model.config.text_config._attn_implementation not in ("sdpa", "eager")
        assert other.config.text_config._attn_implementation == "sdpa"


def test_another_model_s_table_is_refused() -> None:
    before = trace(tiny.model("llama"))
    refused = pytest.raises(SoonerError, match="differs in model_type")
    with refused, sparse("qwen2_5_vl")(tiny.model("llama")):
        pass
    assert trace(tiny.model("llama")) == before


FRAMES = {"llava_onevision": 4, "qwen2_5_vl": 2, "qwen3_vl": 2}


@pytest.mark.parametrize("family", FRAMES)
def test_frames_are_counted_within_videos_and_apart_between_them(family: str) -> None:
    """Rows without any, with a video, and with an image before or behind a video."""
    inputs = tiny.inputs(family, "uneven", 5)
    prompt = adapt(tiny.model(family)).embed_prompt(inputs)
    last = -10
    for row, videos in enumerate((0, 1, 0, 0, 1)):
        numbers = [number for number in prompt.frames[row].tolist() if number >= 0]
        runs = [(number, len(list(run))) for number, run in groupby(numbers)]
        assert len(runs) == videos * FRAMES[family]
        assert all(size == 4 for _, size in runs)
        assert [number - runs[0][0] for number, _ in runs] == list(range(len(runs)))
        if runs:
            assert runs[0][0] > last + 1, "a gap between two videos"
            last = runs[-1][0]
    inside = prompt.frames >= 0
    assert bool((prompt.visual | ~inside).all())


def windowed_model(*kinds: str) -> Any:
    """A model whose layers see everything, or a window of six tokens."""
    model = tiny.model("qwen2")
    config = copy.deepcopy(model.config)
    config.layer_types = [f"{kind}_attention" for kind in kinds]
    config.sliding_window, config.use_sliding_window = 6, True
    made = type(model)(config).double().eval()
    made.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    return made


@torch.no_grad()
@pytest.mark.parametrize("by", ["sooner", "transformers"])
def test_layers_of_windows_run_the_model_s_attention(by: str) -> None:
    """Patterns of six near tokens in the layer between them make all layers of windows."""
    model, expected = windowed_model("sliding", "full", "sliding"), windowed_model(*["sliding"] * 3)
    inputs = prompt_of("qwen2", 2)
    near = MMInference(Grid(1000, 0, hline=False, vline=False, local=6), backend="reference")
    options = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True}
    custom = {"custom_generate": sooner.Autoregressive()} if by == "sooner" else {}
    with near(model) as report:
        made = model.generate(**inputs, **options, **custom).sequences
        logits = model(**inputs).logits
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(logits[real], expected(**inputs).logits[real], atol=1e-5, rtol=1e-5)
    assert made.tolist() == expected.generate(**inputs, **options).sequences.tolist()
    for prefill in report.prefills:
        assert [layer.is_sparse for layer in prefill.layers] == [False, True, False]
        assert prefill.layers[0].reason == "it sees a window"
        assert prefill.flops_share is not None
        assert prefill.flops_share < 0.2


def test_patterns_are_searched_where_no_window_is_and_models_of_windows_refused() -> None:
    model = windowed_model("sliding", "full", "full").float()
    adapter = adapt(model)
    prompt = adapter.embed_prompt(prompt_of("qwen2"))
    steps: list[tuple[str, int, int]] = []
    samples = [SearchSample(lambda: prompt, PromptLayout.of(prompt, 0))]
    settings = SearchSettings(max_error=1e9, break_even=False)
    table = Search(adapter, samples, settings, on_step=lambda *step: steps.append(step)).run()
    is_dense = [all(h.pattern == Dense() for h in heads) for heads in table.layers]
    assert is_dense == [True, False, False]
    assert steps == [(stage, done, 2) for stage in ("survey", "trial") for done in (1, 2)]
    context = MMInference(AShape(4, 10))(windowed_model(*["sliding"] * 3))
    with pytest.raises(UnsupportedError, match="none can be sparse"), context:
        pass


@pytest.mark.parametrize("family", FRAMES)
def test_patterns_by_frame_are_those_of_the_video_in_hf_s_generate(family: str) -> None:
    """HF's `generate` encodes pixels before the model's forward, which then gets no grids."""
    model, inputs = tiny.model(family), prompt_of(family, 5, "uneven")
    grid = QBoundary({"video": Grid("frame", 1, local=3), "text": Dense(), "image": Dense()})
    with sparse(family, *[grid] * 4)(model) as report:
        sooner.generate(model, inputs, max_new_tokens=2)
        for copies in (1, 2):
            model.generate(**inputs, max_new_tokens=2, num_return_sequences=copies, do_sample=True)
    expected, *shares = [prefill.flops_share for prefill in report.prefills]
    assert shares == pytest.approx([expected] * 2)
    assert expected < 1
