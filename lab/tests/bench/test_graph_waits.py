"""No family whose decoder waits within a forward is launched as graphs: a scan on fake tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import sooner
import tiny
from recorders import StandIn
from sooner.engine.graphs.steps import why_not
from sooner.engine.rows import RowTensor
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.models import FAMILIES, adapt, unproved
from sooner.models.support import seen_with
from sooner_lab.bench.step.guard import NoWaiting, StepWaitsError, fake_cuda
from zoo.species import Species, model_of
from zoo.zoo import DECODED, ZOO

SHAPES = ([], [-1, 0, 1], [-1, -1, 0])
"""Parents of a plain step's nodes, a chain's and a tree's."""

BRIEF = ("aria", "gemma3n", "gemma4", "llama4", "llava_onevision", "qwen3_vl_moe", "step3p7")
"""Species that the core lane scans: one of each kind of decoder."""

EXPERTS = (
    "aria", "deepseek_ocr2", "ernie4_5_vl_moe", "glm4v_moe", "muse_spark", "qwen3_omni_moe_thinker",
    "qwen3_vl_moe",
)  # fmt: skip
"""Species whose experts can be run at once, which the zoo's fp64 can't."""


def fake(tensor: Tensor) -> Tensor:
    """A tensor like it, on a device that is not there."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")


def move(model: Any) -> None:
    for module in model.modules():
        for name, weights in list(module._parameters.items()):
            if weights is not None:
                module._parameters[name] = torch.nn.Parameter(fake(weights), requires_grad=False)
        for name, values in list(module._buffers.items()):
            if values is not None:
                module._buffers[name] = fake(values)


def move_runner(runner: ModelRunner) -> None:
    """What a prefill has made."""
    cache, odd = runner.cache, getattr(runner.adapter, "_odd", None)
    if odd is not None:
        odd.place, odd.made = (
            fake(odd.place),
            {name: fake(value) for name, value in odd.made.items()},
        )
    if cache._stacks:
        cache._stacks = {group: fake(stack) for group, stack in cache._stacks.items()}
    for layer in cache.slot_layers:
        if layer.is_initialized:
            layer.hold(tuple(map(fake, layer.whole)), len(cache.lengths))
    cache._row_lengths = {}
    runner.delta = RowTensor(fake(runner.delta.used), len(cache.lengths), axis=-1)


def first_wait(model: Any, adapter: Any, inputs: dict[str, Any]) -> str | None:
    """What the host waits for in padded steps behind a prompt, if it does; the model is used up.

    A model whose cache takes masks alone, and no graphs, is skipped.
    """
    runner = ModelRunner(adapter, 64)
    with torch.inference_mode():
        runner.prefill(adapter.embed_prompt(inputs))
    if not runner.takes_graphs:
        pytest.skip("keys and values differ in width, so blocks are given masks")
    rows = len(runner.lengths)
    with fake_cuda(), torch.inference_mode():
        move(model)
        move_runner(runner)
        roots = torch.zeros(rows, dtype=torch.long)
        for parents in SHAPES:
            tree = Tree(
                torch.zeros(rows, len(parents), dtype=torch.long),
                torch.tensor([parents] * rows, dtype=torch.long).view(rows, -1),
                torch.full((rows,), len(parents)),
                is_chain=parents == list(range(-1, len(parents) - 1)),
            )
            runner.cache.set_lengths(runner.lengths)
            runner.cache.lengths_on(roots.device)  # uploaded between steps
            try:
                with NoWaiting():
                    runner.forward_padded(roots, tree, tree.sizes + 1)
            except StepWaitsError as error:
                return str(error.wait)
    return None


def cases() -> list[Any]:
    return [
        pytest.param(
            species, experts, id=f"{species}-{experts}",
            marks=[] if species.model_type in BRIEF else [pytest.mark.slow],
        )
        for species in DECODED
        for experts in (("eager", "grouped_mm") if species.model_type in EXPERTS else ("eager",))
    ]  # fmt: skip


@pytest.mark.parametrize(("species", "experts"), cases())
def test_what_waits_is_refused_and_nothing_else_is(
    species: Species, experts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    model = species.build().eval()
    if experts != "eager":
        model.set_experts_implementation(experts)
    family = FAMILIES.get(species.model_type, unproved)
    adapter = family(model)
    refusal = why_not(ModelRunner(adapter, 1))
    if refusal is not None and "takes masks" in refusal:
        pytest.skip(refusal)
    wait = first_wait(model, adapter, species.inputs(model, "text", 2, 0))
    if wait is not None:
        assert refusal is not None, wait
        assert type(model).__name__ in refusal
    elif seen_with() == transformers.__version__:
        assert refusal is None


def test_a_rope_that_reads_positions_is_refused_unless_tokens_are_turned_alone() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    config = LlamaConfig(**tiny.TEXT, num_hidden_layers=1, rope_parameters=rope)
    model = LlamaForCausalLM(config).eval()
    adapter = adapt(model)
    runner = ModelRunner(adapter, 1)
    assert why_not(runner) is None
    assert first_wait(model, adapter, tiny.inputs("llama")) is None
    runner.rope = None
    refusal = why_not(runner)
    assert refusal == "the 'dynamic' RoPE of LlamaForCausalLM reads the largest position"


@pytest.mark.parametrize("name", ["gemma3n", "qwen3_vl_moe"])
def test_a_refusal_is_reported_and_nothing_is_captured(name: str) -> None:
    species, recorder = ZOO[name], StandIn()
    model = model_of(species)
    inputs = species.inputs(model, "text", 1, 0)
    made = sooner.generate(model, inputs, graphs=recorder, max_new_tokens=6, do_sample=False)
    assert recorder.recorded == 0
    assert any(note.startswith("graphs are off: ") for note in made.stats.notes)
