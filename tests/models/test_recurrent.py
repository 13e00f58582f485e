"""Models with convolutional or recurrent layers: what keeps their states, and what is refused.

That every method says what `generate` says is a law of the zoo.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

import sooner
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.models import adapt
from sooner.models.model_types import model_type
from sooner.models.states import StateCache
from zoo import laws
from zoo.species import Species, draft_of, model_of
from zoo.zoo import DECODED

SPECIES = [
    species
    for species in DECODED
    if species.model_type in ("lfm2_vl", "lfm3_vl", "nemotron_h_omni", "qwen3_5")
]
NEW = 9

each = pytest.mark.parametrize("species", SPECIES, ids=str)


def greedy(new: int = NEW) -> dict[str, Any]:
    return {"max_new_tokens": new, "do_sample": False, "eos_token_id": None}


def prefilled(species: Species, room: int = 40) -> tuple[ModelRunner, StateCache]:
    """A runner behind three ragged prompts, and its cache."""
    adapter = adapt(model_of(species))
    prompt = adapter.embed_prompt(species.inputs(adapter.model, "text", laws.ROWS, 0))
    runner = ModelRunner(adapter, prompt.width + room)
    with torch.inference_mode():
        runner.prefill(prompt)
    assert isinstance(runner.cache, StateCache)
    return runner, runner.cache


@each
def test_methods_that_need_more_than_chains_are_refused_by_name(species: Species) -> None:
    model, draft = model_of(species), draft_of(species)
    inputs = species.inputs(model, "text", 1, 0)
    for method in (sooner.SDTree(draft), sooner.ParallelVLM(draft)):
        with pytest.raises(sooner.UnsupportedError, match="takes chains alone") as caught:
            sooner.generate(model, inputs, method, **greedy())
        assert type(method).__name__ in str(caught.value)
        assert "PromptLookup or Speculative" in str(caught.value)
        assert "\n" not in str(caught.value)


@each
def test_blocks_can_not_be_decoded_again(species: Species) -> None:
    model = model_of(species)
    inputs = species.inputs(model, "text", 1, 0)
    with pytest.raises(sooner.UnsupportedError, match="verify_every=9 takes blocks back"):
        sooner.generate(model, inputs, sooner.PromptLookup(), verify_every=9, **greedy())


@each
def test_what_takes_tokens_out_of_a_prompt_is_refused(species: Species) -> None:
    model = model_of(species)
    inputs = species.inputs(model, "image", 1, 0)
    with pytest.raises(sooner.UnsupportedError, match="whose state has seen them"):
        sooner.generate(model, inputs, prefill=sooner.FastV(0.5, layer=1), **greedy())


@each
def test_a_runner_refuses_a_tree_and_a_roll_back(species: Species) -> None:
    runner, _ = prefilled(species)
    tree = Tree.from_lists([[5, 6]] * laws.ROWS, [[-1, -1]] * laws.ROWS)
    with torch.inference_mode():
        runner.forward_tree(torch.tensor([7, 8, 9]), tree)
    with pytest.raises(sooner.UnsupportedError, match="takes chains alone"):
        runner.commit([[0, 2]] * laws.ROWS)
    with pytest.raises(sooner.UnsupportedError, match="can't be taken back"):
        runner.rewind([1] * laws.ROWS)


@each
@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_a_prompt_in_chunks_leaves_the_same_states(species: Species, chunk: int) -> None:
    """Rows are ragged, and some of them end in an earlier chunk."""
    model, kind = model_of(species), "text" if species.model_type == "qwen3_5" else "images"
    inputs = species.inputs(model, kind, laws.ROWS, 0)
    made = sooner.generate(
        model, inputs, sooner.PromptLookup(4, max_ngram=1), prefill_chunk_size=chunk,
        **greedy(laws.NEW),
    )  # fmt: skip
    assert made.tokens == laws.reference(species, kind)


@each
def test_rows_keep_states_of_what_they_accepted(species: Species) -> None:
    """Blocks of which rows keep different parts leave what one token at a time leaves."""
    runner, cache = prefilled(species)
    tokens = torch.arange(20, 32).view(laws.ROWS, 4)
    with torch.inference_mode():
        runner.forward_chain(tokens)
        runner.commit([[0, 1, 2, 3], [0], [0, 1, 2]])
        runner.select_rows([2, 0])
        ours = runner.forward_chain(torch.tensor([[50, 51], [60, 61]])).logits
        for row, count, after in ((2, 3, [50, 51]), (0, 4, [60, 61])):
            alone, _ = prefilled(species)
            alone.select_rows([row])
            for token in [*tokens[row, :count].tolist(), *after]:
                logits = alone.forward_chain(torch.tensor([[token]])).logits
                alone.commit([[0]])
            torch.testing.assert_close(ours[[2, 0].index(row), -1], logits[0, -1])
    assert all(
        len(snapshots) == 3 for layer in cache.state_layers for snapshots in layer.states.values()
    )


@functools.cache
def alone(species: Species, seed: int) -> list[int]:
    """What `generate` says to a prompt of a row."""
    return laws.output(species, species.inputs(model_of(species), "text", 1, seed))[0]


@each
@pytest.mark.parametrize("name", ["prompt-lookup", "chain"])
@pytest.mark.parametrize("memory", [{}, {"pages": 400}], ids=["rows", "pages"])
def test_requests_join_and_leave(species: Species, name: str, memory: dict[str, Any]) -> None:
    """A prompt comes twice, too: no prefix is shared where a state is the whole prompt's."""
    model = model_of(species)
    engine = sooner.Engine(
        model, laws.METHODS[name](species), max_rows=3, prefill_chunk=4, **memory
    )
    requests = []
    for seed, new in ((0, 12), (1, 5), (2, 9), (0, 7), (3, 4)):
        inputs = species.inputs(model, "text", 1, seed)
        expected = alone(species, seed)[:new]
        requests.append((engine.add_request(inputs, **greedy(new)), expected))
        for _ in range(3):
            engine.step()
    engine.run()
    for request, expected in requests:
        assert request.tokens == [expected]


@each
def test_a_checkpoint_s_type_is_known_by_its_config(species: Species, tmp_path: Path) -> None:
    model_of(species).config.save_pretrained(tmp_path)
    assert model_type(str(tmp_path)) == species.model_type
