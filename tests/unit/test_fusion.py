"""Fused operators take the place of a decoder's own, give its bits, and leave nothing behind.

On CPUs an operator is its reference, which is what transformers computes; here they are let in.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tiny
from sooner.engine.fusion import decoder as fusion
from sooner.engine.runner import ModelRunner
from sooner.models import adapt

FAMILIES = ("llama", "qwen2_5_vl", "qwen3_vl")


class Calls(TorchDispatchMode):
    """Counts the library's own operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "sooner":
            self.count[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr("sooner.engine.runner.FUSED", fusion.DEVICES)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    for swap in (*fusion._FORWARDS.values(), *fusion._ROTATIONS.values()):
        assert not swap.users
        assert swap.namespace.get(swap.name) is not swap.value


@torch.no_grad()  # tiny models are shared by tests, and may not be of inference mode
def runner_of(family: str) -> ModelRunner:
    runner = ModelRunner(adapt(tiny.model(family)), 40)
    inputs = tiny.inputs(family, "text", 2)
    runner.prefill(runner.adapter.embed_prompt(inputs))
    return runner


@torch.inference_mode()
def forwarded(runner: ModelRunner) -> tuple[Tensor, Tensor, Counter[str]]:
    with Calls() as calls:
        forward = runner.forward_chain(torch.tensor([[5, 7, 9], [8, 3, 2]]))
    return forward.logits, forward.hidden, calls.count


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_s_states_are_those_of_the_decoder(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(family)
    logits, hidden, calls = forwarded(runner)
    assert not calls["rms_norm"] + calls["rope"], "on a CPU nothing is fused"
    monkeypatch.setattr(fusion, "DEVICES", frozenset({"cpu"}))
    monkeypatch.setattr("sooner.engine.runner.FUSED", fusion.DEVICES)
    fused_logits, fused_hidden, calls = forwarded(runner)
    assert torch.equal(logits, fused_logits)
    assert torch.equal(hidden, fused_hidden)
    layers = runner.adapter.layers
    assert calls["rope"] == layers
    if family != "qwen3_vl":  # whose layers add what vision says
        assert calls["add_rms_norm"] == 2 * layers
        assert calls["rms_norm"] == 1, "the first layer's; the others came with a sum"


@pytest.mark.usefixtures("on_cpus")
def test_nothing_stays_when_a_forward_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of("llama")
    layer = runner.adapter.decoder.layers[1]

    def broken(*_: Any) -> None:
        raise ValueError("broken")

    handle = layer.mlp.register_forward_pre_hook(broken)
    with pytest.raises(ValueError, match="broken"):
        forwarded(runner)
    handle.remove()
    assert not any("forward" in vars(module) for module in runner.adapter.decoder.modules())
    llama = sys.modules[type(layer).__module__]
    assert llama.apply_rotary_pos_emb.__module__ == llama.__name__


@pytest.mark.usefixtures("on_cpus")
def test_hooks_are_called_and_may_change_what_is_normed() -> None:
    runner = runner_of("llama")
    norm = runner.adapter.decoder.layers[1].post_attention_layernorm
    seen: list[Tensor] = []

    def doubled(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.append(args[0])
        return (2 * args[0] + 1,)

    handle = norm.register_forward_pre_hook(doubled)
    logits, _, calls = forwarded(runner)
    assert calls["rms_norm"] == 2, "the norm of another sum is not the one that was computed"
    assert len(seen) == 1
    fusion.DEVICES = frozenset()  # restored by the fixture
    assert torch.equal(forwarded(runner)[0], logits)
    handle.remove()


@pytest.mark.usefixtures("on_cpus")
def test_other_threads_and_gradients_are_left_alone() -> None:
    runner = runner_of("llama")
    model, counts = tiny.model("llama"), []

    def call_model() -> None:
        with Calls() as calls, torch.inference_mode():
            model(torch.tensor([[1, 2, 3]]))
        counts.append(calls.count)

    def run_thread(*_: Any) -> None:
        thread = threading.Thread(target=call_model)
        thread.start()
        thread.join()
        with Calls() as calls, torch.enable_grad():
            model.model(torch.tensor([[1, 2, 3]]))
        counts.append(calls.count)

    handle = runner.adapter.decoder.layers[0].mlp.register_forward_pre_hook(
        lambda *_: (handle.remove(), run_thread())[0]
    )
    with torch.no_grad(), Calls() as calls:
        runner.forward_chain(torch.tensor([[5], [8]]))
    assert calls.count["rope"] == runner.adapter.layers
    assert [count["rope"] + count["rms_norm"] for count in counts] == [0, 0]


@pytest.mark.usefixtures("on_cpus")
def test_what_differs_from_llama_is_not_replaced() -> None:
    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.variance_epsilon = torch.nn.Parameter(torch.ones(4)), 1e-6

        def forward(self, hidden_states: Tensor) -> Tensor:
            return hidden_states + self.weight

    assert fusion._plan(torch.nn.Sequential(Other(), torch.nn.LayerNorm(4))) == []
