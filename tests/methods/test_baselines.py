"""The lossless baselines of ParallelVLM's table 1: exact, and drafting as their papers say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList
from transformers.generation import logits_process as hf

import fakes
import method_matrix as matrix
import sooner
import tiny
from fakes import ERROR, FakeAdapter, Table, chi_square, say
from sooner.decoding.runner import ModelRunner
from sooner.decoding.tree import Tree
from sooner.methods import sd_tree
from sooner.methods.attention_tap import AttentionTap, asking_tokens, listen_twice
from sooner.methods.base import Method
from sooner.methods.onsd import OnSD
from sooner.methods.pruning import attention, attention_variation
from sooner.methods.sd_tree import SDTree
from sooner.methods.sparse_to_dense import SparseToDense
from sooner.methods.specvlm import SpecVLM, staged
from sooner.methods.tree_draft import LevelTensors, TreeShape
from sooner.models import adapt

NEW = 20
VISUAL = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
WIDE = ((3,), (2, 1, 1), (1, 1), (2,))

METHODS: dict[str, Callable[[str], Method]] = {
    "sd-tree": lambda family: SDTree(tiny.noisy(family)),
    "sd-tree-wide": lambda family: SDTree(tiny.noisy(family), branching=WIDE),
    "sd-tree-itself": lambda family: SDTree(tiny.model(family)),
    "sd-tree-words": lambda family: SDTree(tiny.model("llama", seed=3), branching=WIDE),
    "sd-tree-repadded": lambda family: SDTree(tiny.repadded(family, tiny.VOCAB + 32)),
    "onsd": lambda family: OnSD(tiny.noisy(family)),
    "onsd-llama": lambda family: OnSD(tiny.model("llama", seed=3)),
    "specvlm": lambda family: SpecVLM(tiny.noisy(family), prune=0.5),
    "specvlm-words": lambda family: SpecVLM(tiny.model("llama", seed=3), branching=WIDE),
    "specvlm-most": lambda family: SpecVLM(tiny.noisy(family), prune=0.9, layers=1, focus=1.0),
    "sparse-to-dense": lambda family: SparseToDense(prune=0.5, num_draft_tokens=4),
    "sparse-to-dense-most": lambda family: SparseToDense(),
}
PLACES = [
    (family, kind, rows) for family in VISUAL for kind in tiny.kinds(family) for rows in (1, 3)
]


def generate(
    method: Method, family: str, kind: str, rows: int, new: int = NEW, **options: Any
) -> sooner.Generation:
    options = {"eos_token_id": None, "do_sample": False, **options}
    inputs = tiny.inputs(family, kind, rows)
    return sooner.generate(tiny.model(family), inputs, method, max_new_tokens=new, **options)


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


# Sampling


VOCAB, LENGTH, SAMPLES = 3, 5, 12_000
TARGET = Table(VOCAB, LENGTH, seed=1)
NEAR = Table(VOCAB, LENGTH, seed=2, near=TARGET)


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.adapt_fakes(monkeypatch)
    monkeypatch.setattr(sd_tree, "adapt", lambda model: model)


SHAPES = {
    "default": sd_tree.STATIC_TREE,
    "wide": WIDE,
    "flat": ((3,),),
    "chain": ((1,), (1,), (1,)),
    "late-branch": ((1,), (3,), (0, 2, 1), (1, 0, 2)),
}


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("siblings", ["drawn", "top"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_sampled_trees_follow_the_targets_joint_distribution(shape: Any, siblings: Any) -> None:
    method = SDTree(FakeAdapter(NEAR), branching=shape, siblings=siblings)
    said = say(method, FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(said, TARGET.joint()) > ERROR


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("siblings", ["drawn", "top"])
@pytest.mark.parametrize("seed", [3, 9])
def test_forbidden_tokens_and_useless_drafts_keep_the_distribution(
    siblings: Any, seed: int
) -> None:
    target = Table(VOCAB, LENGTH, seed=seed, zeros=True)
    draft = Table(VOCAB, LENGTH, seed=seed + 1, zeros=True)
    method = SDTree(FakeAdapter(draft), branching=WIDE, siblings=siblings)
    said = say(method, FakeAdapter(target), SAMPLES, LENGTH)
    assert chi_square(said, target.joint()) > ERROR


@pytest.mark.usefixtures("_fakes")
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_small_batches_of_trees_follow_the_joint_distribution(rows: int) -> None:
    table = Table(2, 4, seed=4)
    method = SDTree(FakeAdapter(Table(2, 4, seed=5, near=table)), branching=((2,), (1, 1), (2,)))
    said = [say(method, FakeAdapter(table), rows, 4) for _ in range(1200 // rows)]
    assert chi_square(torch.cat(said), table.joint()) > ERROR


class AwayFromLast(hf.LogitsProcessor):
    """Lowers the token just said: a processor that reads the prefix."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[torch.arange(len(scores)), input_ids[:, -1]] -= 1.0
        return scores


@pytest.mark.usefixtures("_fakes")
def test_sampled_trees_are_processed_like_the_target() -> None:
    table, wanted = Table(2, 4, seed=4), Table(2, 4, seed=4)
    logits = table.p.log()
    logits[0, 0] -= 1.0  # prompts are zeros
    for prefix in range(1, len(logits)):
        logits[prefix, (prefix - 1) % 2] -= 1.0
    wanted.p = logits.softmax(-1)
    method = SDTree(FakeAdapter(Table(2, 4, seed=5, near=table)), branching=((2,), (1, 1), (2,)))
    processors = LogitsProcessorList([AwayFromLast()])
    said = [say(method, FakeAdapter(table), 40, 4, processors=processors) for _ in range(40)]
    assert chi_square(torch.cat(said), wanted.joint()) > ERROR
    assert chi_square(torch.cat(said), table.joint()) < ERROR


@pytest.mark.usefixtures("_fakes")
def test_siblings_drawn_with_replacement_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bias: the best tokens, claimed to have been drawn."""
    monkeypatch.setattr(
        "sooner.methods.tree_draft.race", lambda p, generator: p + torch.zeros_like(p)
    )
    method = SDTree(FakeAdapter(NEAR), branching=WIDE, siblings="drawn")
    said = say(method, FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(said, TARGET.joint()) < ERROR


SAMPLED = {
    "sd-tree": lambda family: SDTree(tiny.noisy(family)),
    "sd-tree-top": lambda family: SDTree(tiny.noisy(family), siblings="top"),
    "onsd": lambda family: OnSD(tiny.noisy(family)),
    "specvlm": lambda family: SpecVLM(tiny.noisy(family), prune=0.5, branching=WIDE),
    "sparse-to-dense": lambda family: SparseToDense(prune=0.5, num_draft_tokens=3),
}


def joint(family: str, inputs: dict, options: dict, length: int) -> dict[tuple[int, ...], float]:
    """Probabilities of every sequence, by HF's own incremental decoding and its processors."""
    width, table = inputs["input_ids"].shape[1], {(): 1.0}
    for depth in range(length):
        longer = {}
        for said, chance in table.items():
            forced = [*said, -1]
            output = tiny.model(family).generate(
                **inputs, **options, max_new_tokens=depth + 1, eos_token_id=None, do_sample=True,
                output_scores=True, return_dict_in_generate=True,
                prefix_allowed_tokens_fn=lambda _row, ids, forced=forced: (
                    [forced[len(ids) - width]] if forced[len(ids) - width] >= 0 else list(range(96))
                ),
            )  # fmt: skip
            p = output.scores[-1][0].softmax(-1)
            longer |= {
                (*said, token): chance * p[token].item() for token in p.nonzero()[:, 0].tolist()
            }
        table = longer
    return table


@pytest.mark.parametrize("name", SAMPLED)
def test_real_models_sample_the_enumerated_distribution(name: str) -> None:
    """The words between draft, pruned prompt, sparse cache and rule, on a real model."""
    family, kind, length = "qwen2_5_vl", "image", 4
    options = {"top_k": 2, "temperature": 1.2}
    one = tiny.inputs(family, kind, 1)
    expected = joint(family, one, options, length)
    many = {key: value.repeat(150, *[1] * (value.ndim - 1)) for key, value in one.items()}
    model, method, said = tiny.model(family), SAMPLED[name](family), []
    for seed in range(6):
        made = sooner.generate(
            model, many, method, max_new_tokens=length, eos_token_id=None, do_sample=True,
            seed=seed, **options,
        )  # fmt: skip
        said.append(torch.tensor(made.tokens))
    assert chi_square(torch.cat(said), expected) > ERROR


# Drafts


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_tree_is_accepted_further_than_a_chain_of_its_depth(family: str) -> None:
    kind = tiny.kinds(family)[-1]
    chain = sooner.Speculative(tiny.noisy(family), num_draft_tokens=5)
    lengths = [
        generate(method, family, kind, 5, 40).stats.mean_acceptance_length
        for method in (chain, SDTree(tiny.noisy(family)))
    ]
    assert lengths[1] > lengths[0]


@pytest.mark.parametrize("kind", ["text", "uneven"])
def test_a_perfect_tree_is_accepted_to_its_depth(kind: str) -> None:
    """Every round five levels and the bonus: the draft's cache keeps the path it was told."""
    stats = generate(METHODS["sd-tree-itself"]("qwen3_vl"), "qwen3_vl", kind, 3, 19).stats
    assert stats.acceptance_histogram == {5: 9}
    assert stats.nfe == 4


def test_accepted_nodes_are_not_fed_to_the_draft_again() -> None:
    """After a whole path, only the leaf, which was never forwarded, and the new token are."""
    family = "qwen2_5_vl"
    method, widths = SDTree(tiny.model(family)), []
    hook = (
        tiny.model(family)
        .get_decoder()
        .register_forward_pre_hook(
            lambda _module, _args, kwargs: widths.append(kwargs["inputs_embeds"].shape[1]),
            with_kwargs=True,
        )
    )
    try:
        generate(method, family, "image", 1, 13)
    finally:
        hook.remove()
    shape = TreeShape(sd_tree.STATIC_TREE)
    levels = [len(level.sources) for level in shape.levels[1:]]
    prompt = tiny.inputs(family, "image", 1)["input_ids"].shape[1]
    # Four times the prompt: embedded and prefilled, by the target and by the draft.
    rounds = [1, *levels, 1 + shape.nodes], [2, *levels, 1 + shape.nodes]
    assert widths == [*[prompt] * 4, *rounds[0], *rounds[1]]


@pytest.mark.parametrize("family", tiny.FAMILIES)
@torch.no_grad()
def test_levels_one_by_one_equal_the_whole_tree_at_once(family: str) -> None:
    adapter, shape = adapt(tiny.model(family)), TreeShape(WIDE)
    prompt = adapter.embed_prompt(tiny.inputs(family, tiny.kinds(family)[-1], 3))
    runner = ModelRunner(adapter, prompt.width + 20)
    runner.prefill(prompt)
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 80, (3, shape.nodes), generator=generator)
    parents = torch.tensor(shape.parents).expand(3, -1)
    before, roots = list(runner.lengths), torch.tensor([7, 8, 9])
    whole = runner.forward_tree(roots, Tree(tokens, parents, [shape.nodes] * 3)).logits
    runner.forward_chain(roots[:, None])
    runner.commit([[0]] * 3)
    for depth, level in enumerate(shape.levels[1:], start=1):
        sent = LevelTensors(shape, depth, torch.device("cpu"))
        expected = whole[:, [source + 1 for source in level.sources]]
        for seen in (sent.seen, torch.tensor([level.seen])):  # as bits, and plainly
            logits = runner.forward_level(tokens[:, sent.sources], sent.depths, seen).logits
            torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert runner.lengths == [length + 1 for length in before]


def test_one_draft_forward_a_level() -> None:
    stats = generate(METHODS["sd-tree-itself"]("llama"), "llama", "text", 2, 19).stats
    assert stats.draft_forwards == 3 * 5


def test_shapes_are_read_level_by_level() -> None:
    shape = TreeShape(((2,), (2, 1), (0, 1)))
    assert shape.parents == [-1, -1, 0, 0, 1, 3]
    assert shape.ranks == [0, 1, 0, 1, 0, 0]
    assert shape.sizes == [0, 2, 5, 6]
    assert [level.sources for level in shape.levels] == [[-1], [0, 1], [3]]
    assert shape.slots == {0: 0, 1: 1, 3: 2}
    assert shape.levels[2].seen == [[True, False, True]]


def test_a_small_vocabulary_clips_a_shape() -> None:
    shape = TreeShape(((4,), (1, 1, 3, 1), (1, 1, 1)), most=2)
    assert shape.parents == [-1, -1, 0, 1, 2, 3]


def test_the_default_tree_has_five_levels() -> None:
    shape = TreeShape(sd_tree.STATIC_TREE)
    assert (shape.depth, shape.nodes) == (5, 25)


@pytest.mark.parametrize("family", VISUAL)
@pytest.mark.parametrize("kind", ["video", "uneven"])
@torch.no_grad()
def test_the_tap_hears_what_eager_attention_shows(family: str, kind: str) -> None:
    """Rows of attention from queries and keys alone equal those of the full matrix."""
    heard: dict[str, list[torch.Tensor]] = {}
    for name, model in (("sdpa", tiny.model(family)), ("eager", tiny.eager(family))):
        adapter = adapt(model)
        prompt = adapter.embed_prompt(tiny.inputs(family, kind, 3))
        asking = asking_tokens(prompt.visual, prompt.lengths, 5)
        seen = heard.setdefault(name, [])
        tap = AttentionTap(adapter.decoder, [0, 2], asking, lambda _n, s, seen=seen: seen.append(s))
        adapter.decode(prompt.embeds, prompt.positions, attention_mask=None, **prompt.extras)
        tap.remove()
        for scores in seen:  # each asking token spreads a weight of one
            assert scores.sum(-1).allclose(asking.valid.sum(1).float()[:, None], atol=1e-4)
    for ours, theirs in zip(heard["sdpa"], heard["eager"], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_only_the_words_behind_the_pixels_ask() -> None:
    visual = torch.zeros(3, 9, dtype=torch.bool)
    visual[0, 2:4], visual[1, 1:6] = True, True
    asking = asking_tokens(visual, [7, 6, 9], 4)
    rows = zip(asking.slots.tolist(), asking.valid.tolist(), strict=True)
    asked = [[slot for slot, valid in zip(*row, strict=True) if valid] for row in rows]
    assert asked == [[4, 5, 6], [5], [5, 6, 7, 8]]


@pytest.mark.parametrize("depth", [1, 2, 3])
@torch.no_grad()
def test_attention_criteria_are_told_in_the_middle_of_the_prefill(depth: int) -> None:
    """The way in for an ablation of ParallelVLM: the tap that ranks by attention."""
    family = "qwen3_vl"
    model, inputs = tiny.model(family), tiny.inputs(family, "uneven", 3)
    session = SparseToDense().session(
        model, inputs, criteria=StoppingCriteriaList([MaxLengthCriteria(500)])
    )
    context = session.drafter.context
    told: list[tuple[torch.Tensor, ...]] = []
    layers: list[int] = []
    hooks = [
        layer.register_forward_hook(lambda *_, number=number: layers.append(number))
        for number, layer in enumerate(context.target.decoder.layers)
    ]
    tap = listen_twice(context, depth, 8, lambda *pair: told.append((*pair, len(layers))))
    session.target.prefill(session.prompt)
    for hook in (tap, *hooks):
        hook.remove()
    [(first, last, when)] = told
    assert when == depth - 1, "before layer L has ended"
    visual = tap.asking.visual[1]
    assert torch.equal(attention(last[1], visual), last[1][visual])
    growth = attention_variation(first[1], last[1], visual)
    torch.testing.assert_close(growth, (last[1] - first[1])[visual])
    assert depth == 1 or growth.abs().max() > 1e-3


@pytest.mark.parametrize("name", METHODS)
def test_hooks_are_gone_afterwards_even_after_an_error(name: str) -> None:
    family = "qwen2_5_vl"
    model = tiny.model(family)

    def hooks() -> int:
        return sum(
            len(module._forward_hooks) + len(module._forward_pre_hooks)
            for module in model.modules()
        )

    before = hooks()
    generate(METHODS[name](family), family, "video", 1)
    assert hooks() == before
    last = model.get_decoder().layers[-1]
    breaks = last.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(METHODS[name](family), family, "video", 1)
    breaks.remove()
    assert hooks() == before
    assert torch.overrides._len_torch_function_stack() == 0


@pytest.mark.parametrize("focus", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9, 1.0])
def test_staged_pruning_keeps_its_share(ratio: float, focus: float) -> None:
    scores = torch.rand(40, generator=torch.Generator().manual_seed(1)) ** 4
    kept = staged(scores, ratio, focus)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert len(kept) == max(1, round(40 * (1 - ratio)))
    assert focus == 0 or int(scores.argmax()) in kept


def test_full_focus_is_the_top_k_and_none_is_spread_evenly() -> None:
    scores = torch.arange(20.0)
    assert staged(scores, 0.75, 1.0).tolist() == [15, 16, 17, 18, 19]
    assert staged(scores, 0.75, 0.0).tolist() == [0, 4, 8, 12, 16]


@pytest.mark.parametrize("family", VISUAL)
def test_specvlm_drafts_from_a_shorter_prompt(family: str) -> None:
    """Draft caches shrink with the prompt, and nothing else changes."""
    methods = [SpecVLM(tiny.noisy(family), prune=prune) for prune in (0.0, 0.5, 0.9)]
    sizes = [generate(one, family, "mixed", 1).stats.draft_cache_bytes for one in methods]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize("family", VISUAL)
def test_a_sparse_cache_with_everything_agrees_with_the_dense_one(family: str) -> None:
    stats = generate(SparseToDense(prune=0.0), family, "uneven", 3, 21).stats
    assert stats.acceptance_histogram == {9: 6}
    assert stats.seconds["draft_prefill"] > 0


@pytest.mark.parametrize("family", VISUAL)
def test_a_sparse_cache_is_smaller_and_still_agrees_often(family: str) -> None:
    whole, some = (
        generate(SparseToDense(prune=prune), family, "video", 3, 30).stats for prune in (0.0, 0.6)
    )
    assert some.draft_cache_bytes < whole.draft_cache_bytes
    assert 1.5 < some.mean_acceptance_length < whole.mean_acceptance_length


def test_the_sparse_draft_is_fed_one_token_a_step() -> None:
    """The dense cache already has what was committed; nothing is prefilled or fed twice."""
    family, widths = "qwen2_5_vl", []
    hook = (
        tiny.model(family)
        .get_decoder()
        .register_forward_pre_hook(
            lambda _module, _args, kwargs: widths.append(kwargs["inputs_embeds"].shape[1]),
            with_kwargs=True,
        )
    )
    try:
        generate(SparseToDense(prune=0.5, num_draft_tokens=4), family, "video", 1)
    finally:
        hook.remove()
    prompt = tiny.inputs(family, "video", 1)["input_ids"].shape[1]
    assert sum(width == prompt for width in widths) == 2, "embedding and prefill, of one prompt"
    assert set(widths) <= {prompt, 1, 2, 3, 4, 5}
    assert widths.count(1) > widths.count(5)


@pytest.mark.parametrize("family", VISUAL)
@pytest.mark.parametrize("kind", ["video", "uneven"])
def test_onsd_draft_never_sees_pixels(family: str, kind: str) -> None:
    """Other pixels, same words: the draft's own forward is the same."""
    draft = tiny.noisy(family)
    prompts = []
    hook = draft.get_decoder().register_forward_pre_hook(
        lambda _module, _args, kwargs: prompts.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    try:
        generate(OnSD(draft), family, kind, 3)
    finally:
        hook.remove()
    ids, mask = (tiny.inputs(family, kind, 3)[name] for name in ("input_ids", "attention_mask"))
    words = (mask.bool() & ~torch.isin(ids, torch.tensor([tiny.IMAGE, tiny.VIDEO]))).sum(1)
    assert prompts[0].shape[1] == words.max()


BAD: list[tuple[Callable[[], Method], str]] = [
    (lambda: SDTree(None, branching=()), "branching"),
    (lambda: SDTree(None, branching=((0,),)), "branching"),
    (lambda: SDTree(None, branching=((2,), (1, 1, 1))), "branching"),
    (lambda: SDTree(None, branching=((2,), (-1, 1))), "branching"),
    (lambda: SDTree(None, branching=((2, 1),)), "branching"),
    (lambda: SDTree(None, siblings="topp"), "did you mean 'top'"),
    (lambda: SpecVLM(None, prune=1.2), "prune"),
    (lambda: SpecVLM(None, focus=-0.1), "focus"),
    (lambda: SpecVLM(None, layers=0), "layers"),
    (lambda: SpecVLM(None, queries=0), "queries"),
    (lambda: SparseToDense(prune=-1), "prune"),
    (lambda: SparseToDense(num_draft_tokens=0), "num_draft_tokens"),
    (lambda: SparseToDense(queries=0), "queries"),
    (lambda: OnSD(None, num_draft_tokens=0), "num_draft_tokens"),
    (lambda: OnSD(None, num_draft_tokens="all"), "OnSD: num_draft_tokens"),
]


@pytest.mark.parametrize(("build", "word"), BAD, ids=itertools.count())
def test_bad_options_are_named(build: Callable[[], Method], word: str) -> None:
    with pytest.raises(sooner.SoonerError, match=word) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_more_layers_than_the_target_has_are_refused() -> None:
    with pytest.raises(sooner.SoonerError, match="layers is 9"):
        generate(SpecVLM(tiny.noisy("qwen3_vl"), layers=9), "qwen3_vl", "video", 1)
