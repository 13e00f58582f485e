"""Sparse, chunked, pruned, compressed and offloaded prefills, two at a time, under every kind of
method: they compose, or are refused by the one table of `sooner.engine.composition`."""

from __future__ import annotations

import functools
import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

import sooner
import tiny
from method_matrix import METHODS
from sooner.engine.composition import FEATURES, REFUSALS
from sooner.engine.composition import METHODS as KINDS
from sooner.engine.interface import cache_of
from sooner.engine.runner import ModelRunner
from sooner.errors import UnsupportedError
from sooner.methods.parallel.drafter import ParallelDrafter
from sooner.models import adapt
from sooner.models.hooks import ForwardHooks
from sooner.sparse.modality import PromptLayout, keep_count
from sooner.sparse.patterns import AShape, Grid, HeadPattern, Lines, VerticalSlash
from sooner.sparse.plane import Plane
from sooner.sparse.pruning.stage import PruningStage, Selection, keep_best
from sparse_attention.contexts import STATIC, decode, mask_of, prompt_of, sparse

FAMILY, CHUNK = "qwen3_vl", 37
PLAIN = frozenset({"chunked", "offloaded"})
"""Features that change nothing of what comes out."""


@functools.cache
def methods() -> dict[str, sooner.Method | None]:
    """Returns a method of each kind."""
    draft = tiny.noisy(FAMILY)
    return {
        "plain": None,
        "speculative": sooner.Speculative(draft, num_draft_tokens=4),
        "parallel": METHODS["parallel"](FAMILY),
        KINDS[3]: sooner.ParallelVLM(draft, prune=0.5, min_visual=0, layer=2, placement="thread"),
        "tree": sooner.Eagle(tiny.head(FAMILY), nodes=20),
        KINDS[5]: sooner.DDTree(tiny.block_drafter(FAMILY), nodes=20),
    }


def compressed(model: Any) -> ForwardHooks:
    """Returns hooks that leave each layer half of the keys, as presses of kvpress do."""

    def compress(module: Any, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        layer = cache_of(kwargs).layers[module.layer_idx]
        layer.keys, layer.values = (part[:, :, ::2] for part in (layer.keys, layer.values))

    hooks = ForwardHooks()
    for layer in model.get_decoder().layers:
        hooks.after(layer.self_attn, compress)
    return hooks


def contexts() -> dict[str, Any]:
    """Returns a context of each feature that is one."""
    dynamic = sparse(FAMILY, VerticalSlash(3, 5), Grid(), *STATIC[:2])
    fastv = sooner.FastV(0.5, layer=1)
    static = sparse(FAMILY)
    return {"static": static, "dynamic": dynamic, "compressed": compressed, "pruned": fastv}


def refused(features: frozenset[str], kind: str) -> frozenset[str] | None:
    """Returns the refusal that features and a method meet; `None` if they compose."""
    return next((parts for parts in REFUSALS if parts <= {*features, kind}), None)


@functools.cache
def outcome(features: frozenset[str], kind: str) -> tuple[list[list[int]], str, int]:
    """Returns ids, mode, and the most tokens that an MLP got at once."""
    model, widths = tiny.model(FAMILY), [0]
    chunk = CHUNK if "chunked" in features else None
    kind_of_cache = "offloaded" if "offloaded" in features else None
    with ExitStack() as stack:
        mlps = stack.enter_context(ForwardHooks())
        mlps.before(
            model.get_decoder().layers[1].mlp, lambda _, args, __: widths.append(args[0].shape[1])
        )
        for name in sorted(features - PLAIN):
            stack.enter_context(contexts()[name](model))
        made = decode(
            FAMILY, None, methods()[kind], prefill_chunk_size=chunk,
            cache_implementation=kind_of_cache,
        )  # fmt: skip
    return made.tokens, made.stats.mode, max(widths)


CELLS = [
    (frozenset(pair), kind)
    for pair in (*itertools.combinations(FEATURES, 1), *itertools.combinations(FEATURES, 2))
    if set(pair) != {"static", "dynamic"}  # one table of patterns has both
    for kind in KINDS
]


@pytest.mark.parametrize(
    ("features", "kind"), CELLS, ids=lambda part: part if part in KINDS else "+".join(sorted(part))
)
def test_a_cell_composes_or_is_refused_by_name(features: frozenset[str], kind: str) -> None:
    if (parts := refused(features, kind)) is not None:
        with pytest.raises(UnsupportedError, match=REFUSALS[parts].split("{")[0]):
            outcome(features, kind)
        return
    ids, mode, width = outcome(features, kind)
    assert ids == outcome(features - PLAIN, "plain")[0]
    assert mode == ("exact" if features <= PLAIN else "approximate")
    assert (width <= CHUNK) is ("chunked" in features)


def test_the_page_has_the_table() -> None:
    lines = [f"| prefill | {' | '.join(KINDS)} |", "|---" * (1 + len(KINDS)) + "|"]
    for features, cells in itertools.groupby(CELLS, lambda cell: cell[0]):
        words = ["no" if refused(features, kind) else "yes" for _, kind in cells]
        name = ", ".join(feature for feature in FEATURES if feature in features)
        lines.append(f"| {name} | {' | '.join(words)} |")
    page = Path(__file__).parents[2] / "docs/sparse-prefill.md"
    assert "\n".join(lines) + "\n" in page.read_text("utf-8"), "\n".join(lines)


class _Ends(AShape):
    """An A-shape whose last queries see everything."""

    def lines(self, plane: Plane) -> Lines:
        return super().lines(plane)._replace(bottom=max(40 - plane.later, 0))


@pytest.mark.parametrize("pattern", [*STATIC, Grid("frame", 1, local=3), _Ends(2, 9)], ids=str)
def test_queries_of_a_chunk_see_what_they_see_in_the_whole(pattern: HeadPattern) -> None:
    spans = (("text", 30), ("video", 64), ("text", 21), ("image", 9), ("padding", 3))
    layout = PromptLayout.spans(*spans, frame=8)
    expected = mask_of(pattern, layout)
    for start in range(0, len(layout), 25):
        end = min(start + 25, len(layout))
        seen = mask_of(pattern, layout.chunk(start, end))[: end - start]
        assert torch.equal(seen, expected[start:end, :end])


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("chunk", [1, 16, 70])
def test_static_patterns_in_chunks_leave_what_the_whole_prompt_leaves(
    chunk: int, backend: str
) -> None:
    """Rows of different lengths; shares of pairs are exact, too."""
    family = "llava_onevision"
    model = tiny.model(family)
    adapter, context = adapt(model), sparse(family, backend=backend, measure_recall=True)
    results = []
    with torch.inference_mode(), context(model) as report:
        for size in (None, chunk):
            prompt = adapter.embed_prompt(prompt_of(family, 3, "uneven"))
            runner = ModelRunner(adapter, prompt.width + 4)
            made = [runner.prefill(prompt, size), runner.forward_chain(torch.ones(3, 2).long())]
            results.append(torch.cat([each.logits for each in made], 1))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    whole, cut = report.prefills
    assert cut.flops_share == pytest.approx(whole.flops_share)
    assert 0.2 < cut.recall < 1


class _Stages(sooner.FastV):
    """Drops in front of two layers, by the attention of the last eight queries."""

    def stages(self, layers: int) -> tuple[int, ...]:
        return (1, 2)

    def keep(self, stage: PruningStage) -> Selection:
        last = torch.arange(len(stage.places))[-8:]
        count = keep_count(stage.total, self.ratio * (1 + stage.number))
        return Selection(keep_best(stage.visual, stage.attention(last).mean(0), count))


class _AtOnce(sooner.FastV):
    """Drops the last visual token in front of the first layer."""

    def stages(self, layers: int) -> tuple[int, ...]:
        return (0,)

    def keep(self, stage: PruningStage) -> Selection:
        last = int(stage.visual.nonzero()[-1])
        return Selection(torch.tensor([n for n in range(len(stage.visual)) if n != last]))


def test_ranking_is_refused_behind_a_pruner_of_embeddings() -> None:
    with pytest.raises(UnsupportedError, match="but a prefill context left 118 of them"):
        decode(FAMILY, _AtOnce(), methods()["parallel"])


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_pruners_in_chunks_keep_the_tokens_of_the_whole_prompt(family: str, attention: str) -> None:
    model = tiny.model(family) if attention == "sdpa" else tiny.eager(family)
    runs = [
        sooner.generate(
            model, prompt_of(family), prefill=_Stages(0.3), prefill_chunk_size=chunk,
            max_new_tokens=9, eos_token_id=None,
        )
        for chunk in (None, 10, 64)
    ]  # fmt: skip
    assert runs[0].tokens == runs[1].tokens == runs[2].tokens
    assert runs[0].stats.notes == runs[1].stats.notes
    assert "visual tokens" in " ".join(runs[0].stats.notes)


def test_ranking_in_chunks_keeps_the_tokens_of_the_whole_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[Any] = []
    prefill = ParallelDrafter._prefill

    def record(self: ParallelDrafter, indices: Any) -> None:
        chosen.append(indices)
        prefill(self, indices)

    monkeypatch.setattr(ParallelDrafter, "_prefill", record)
    inputs = prompt_of(FAMILY, 3, "uneven")
    for chunk in (None, 7):
        decode(FAMILY, None, methods()["parallel"], inputs=inputs, prefill_chunk_size=chunk)
    assert chosen[0] == chosen[1] != []


def test_requests_whose_chunks_take_turns_are_sparse_as_alone() -> None:
    model = tiny.model("llama")
    alone = [decode("llama", sparse("llama"), rows=rows).tokens for rows in (1, 2)]
    engine = sooner.Engine(model, prefill_chunk=16)
    with sparse("llama")(model) as report:
        requests = [
            engine.add_request(prompt_of("llama", rows), max_new_tokens=7, eos_token_id=None)
            for rows in (1, 2)
        ]
        engine.run()
    assert [request.tokens for request in requests] == alone
    assert [len(prefill.sparse) for prefill in report.prefills] == [3, 3]
