"""Graphs outlive a call: the next one of a model captures nothing, in whatever way it comes."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch

import sooner
import tiny
from method_matrix import METHODS, reference
from recorders import StandIn
from sooner.engine.graphs.store import key_of
from sooner.engine.row_sampling import SamplingParams
from sooner.engine.runner import GRAPHS, ModelRunner
from sooner.methods.eagle.mtp import MtpHead
from sooner.models import adapt

GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": None}
FAST = (
    "plain", "prompt-lookup", "noisy-4", "sd-tree", "jacobi-4", "eagle",
    "eagle3", "mtp", "dflash", "ddtree", "hsd",
)  # fmt: skip
"""Each kind of drafter; others that are recorded are variants, which no clock sizes either."""
SLOW = (
    "itself", "words-only", "onsd", "assistant", "eagle-wide", "eagle-chain",
)  # fmt: skip
NAMES = (*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW))


@functools.cache
def mtp_head(family: str) -> MtpHead:
    """An untrained MTP layer."""
    torch.manual_seed(4)
    return MtpHead.like(adapt(tiny.model(family)))


def method(name: str, family: str = "llama") -> Any:
    return sooner.Eagle(mtp_head(family), nodes=40) if name == "mtp" else METHODS[name](family)


def output(name: str, graphs: Any, rows: int = 2, new: int = 23, **options: Any) -> Any:
    return sooner.generate(
        tiny.model("llama"), tiny.inputs("llama", "text", rows), method(name),
        max_new_tokens=new, graphs=graphs, **{**GREEDY, **options},
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_later_calls_capture_nothing(name: str) -> None:
    """Nor do they run a step as it is first; and they say the same."""
    recorder = StandIn()
    expected = reference("llama", "text", 2, 23)
    assert torch.equal(output(name, recorder).sequences, expected)
    recorded = recorder.recorded
    assert recorded > 0
    for _ in range(2):
        made = output(name, recorder)
        assert torch.equal(made.sequences, expected)
        assert made.stats.graphs == 0
        assert made.stats.capture_seconds == 0
    assert recorder.recorded == recorded
    assert recorder.replayed > recorded


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        ("plain", 24), ("noisy-4", None), ("eagle", 24), ("dflash", None),
        *(
            pytest.param(name, pages, marks=pytest.mark.slow)
            for name, pages in (
                ("plain", None), ("noisy-4", 24), ("eagle", None), ("dflash", 24), ("hsd", 24),
                ("mtp", None), ("eagle3", 24),
            )
        ),
    ],
)  # fmt: skip
def test_an_engine_captures_nothing_after_an_idle_gap(name: str, pages: int | None) -> None:
    """With requests that come together, one by one, and as the last one ends."""
    recorder, family = StandIn(), "llama"
    engine = sooner.Engine(
        tiny.model(family), method(name), max_rows=2, graphs=recorder, pages=pages,
        paged=None if pages is None else True,
    )  # fmt: skip
    new = 13
    expected = reference(family, "text", 1, new)[0, -new:].tolist()

    def serve() -> None:
        requests = [engine.add_request(tiny.inputs(family), max_new_tokens=new, **GREEDY)]
        for _ in range(3):
            engine.step()
        requests.append(engine.add_request(tiny.inputs(family), max_new_tokens=new, **GREEDY))
        engine.run()
        requests.append(engine.add_request(tiny.inputs(family), max_new_tokens=new, **GREEDY))
        engine.run()
        assert [request.tokens for request in requests] == [[expected]] * 3

    serve()
    serve()
    recorded = recorder.recorded
    assert recorded > 0
    for _ in range(2):
        assert engine.is_idle
        serve()
    assert recorder.recorded == recorded


def test_concurrent_calls_have_separate_memory() -> None:
    recorder, family = StandIn(), "llama"
    output("plain", recorder, 1)
    sessions = [
        METHODS["plain"](family).session(
            tiny.model(family), tiny.inputs(family), SamplingParams(max_new_tokens=23),
            graphs=recorder,
        )
        for _ in range(2)
    ]  # fmt: skip
    from sooner.engine.loop import Decoding

    runs = [Decoding(session) for session in sessions]
    for decoding in runs:
        assert not list(decoding.prefill())
    while any(decoding.rows.active for decoding in runs):
        for decoding in runs:
            if decoding.rows.active:
                decoding.round()
    stores = [decoding.session.target.cache.slot_layers[0].whole[0].data_ptr() for decoding in runs]
    assert len(set(stores)) == 2
    expected = reference(family, "text", 1, 23)[0, -23:].tolist()
    assert [decoding.rows.generated for decoding in runs] == [[expected]] * 2
    for decoding in runs:
        decoding.close()


def test_what_a_graph_has_read_decides_whether_it_is_used_again() -> None:
    """Weights that were written or moved, hooks, switches in modules."""
    model = copy.deepcopy(tiny.model("llama"))
    runner = ModelRunner(adapt(model), 8)
    keys = [key_of(runner, "auto")]

    def changed() -> bool:
        keys.append(key_of(ModelRunner(adapt(model), 8), "auto"))
        return keys[-1] not in keys[:-1]

    assert not changed()
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(2)
    assert changed()
    model.model.layers[0].mlp.up_proj.weight = torch.nn.Parameter(torch.zeros(64, 48))
    assert changed()
    handle = model.model.layers[1].register_forward_hook(lambda *_: None)
    assert changed()
    handle.remove()
    model.model.layers[1].self_attn._disable_adapters = True
    assert changed()
    model.lm_head.train()
    assert changed()
    model.set_attn_implementation("eager")
    assert changed()


def test_a_changed_model_is_captured_anew() -> None:
    model, recorder = copy.deepcopy(tiny.model("llama")), StandIn()
    inputs = tiny.inputs("llama")
    options = {**GREEDY, "max_new_tokens": 12}
    first = sooner.generate(model, inputs, graphs=recorder, **options).tokens
    with torch.no_grad():
        for weights in model.lm_head.parameters():
            weights.copy_(weights.flip(0))
    second = sooner.generate(model, inputs, graphs=recorder, **options).tokens
    assert second == sooner.generate(model, inputs, graphs="off", **options).tokens != first


def test_a_store_goes_with_its_model_and_copies_have_none() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    sooner.generate(model, tiny.inputs("llama"), graphs=StandIn(), max_new_tokens=6, **GREEDY)
    assert getattr(model, GRAPHS)._idle
    assert not getattr(copy.deepcopy(model), GRAPHS)._idle
    assert not pickle.loads(pickle.dumps(getattr(model, GRAPHS)))._idle
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_calls_of_other_lengths_and_methods_share_them() -> None:
    recorder = StandIn()
    for name, new in (("plain", 9), ("plain", 40), ("prompt-lookup", 30), ("plain", 20)):
        assert torch.equal(
            output(name, recorder, 1, new).sequences, reference("llama", "text", 1, new)
        )
    recorded = recorder.recorded
    output("plain", recorder, 1, 50)
    output("prompt-lookup", recorder, 1, 30)
    assert recorder.recorded == recorded


def test_idle_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(tiny.model("llama"))
    for number in range(6):
        sooner.generate(
            model, tiny.inputs("llama"), graphs=StandIn(), max_new_tokens=6 + number, **GREEDY
        )
    store = getattr(model, GRAPHS)
    assert len(store._idle) == 4
    monkeypatch.setattr("sooner.engine.graphs.store.MAX_BYTES", 2 * store._idle[0].nbytes + 1)
    sooner.generate(model, tiny.inputs("llama"), graphs=StandIn(), max_new_tokens=8, **GREEDY)
    assert len(store._idle) == 2
    store.clear()
    assert not store._idle
