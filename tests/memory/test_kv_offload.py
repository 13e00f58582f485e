"""Keys and values in host memory: what is where, when it is copied, and what is refused.

Tokens are those of the exactness matrix (entry `offloaded`) and of the table of what composes.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GenerationConfig

import method_matrix as matrix
import sooner
import tiny
from methods.doors import refused
from sooner.engine import hf_border
from sooner.engine.cache import kv_shapes
from sooner.engine.graphs.steps import why_not_padded
from sooner.engine.offload import OffloadedCache, offload, offloaded_bytes
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.models import adapt
from sooner.models.hooks import ForwardHooks
from sooner_lab.bench.step import engine
from sooner_lab.bench.step.simulated import DEVICE, SimulatedTensor, simulated_device, to_device
from zoo import laws
from zoo.species import Species, model_of
from zoo.zoo import DECODED, ZOO

OFFLOADED = {"cache_implementation": "offloaded"}
GREEDY: dict[str, Any] = {"max_new_tokens": 21, "eos_token_id": None, "do_sample": False}
LAYERS = 6


# On a device of its own memory


def device_bytes() -> int:
    """Returns bytes of all tensors that are alive on the simulated device."""
    parts = [part for part in gc.get_objects() if type(part) is SimulatedTensor]
    stores = [part.cpu_values.untyped_storage() for part in parts]
    return sum({store.data_ptr(): store.nbytes() for store in stores}.values())


def measured(words: int, method: str, chunk: int | None, **options: Any) -> tuple[list[int], int]:
    """Returns new tokens behind a prompt, and the most bytes on the device at any layer."""
    model = engine.tiny(LAYERS)
    made = {
        "plain": sooner.Autoregressive(),
        "prompt-lookup": sooner.PromptLookup(num_draft_tokens=4, max_ngram=1),
        "speculative": sooner.Speculative(to_device(engine.tiny(1)), num_draft_tokens=3),
    }[method]
    ids = torch.randint(3, 90, (1, words), generator=torch.Generator().manual_seed(1))
    model, peaks, count = to_device(model), list[int](), 0
    with simulated_device(), ForwardHooks() as hooks:

        def look(*_: Any) -> None:
            nonlocal count
            count += 1
            if count % 5 == 0:  # which is another layer each time
                peaks.append(device_bytes())

        for layer in model.model.layers:
            hooks.after(layer.self_attn, look)
        result = sooner.generate(
            model, {"input_ids": ids.to(DEVICE)}, made, max_new_tokens=9, eos_token_id=None,
            prefill_chunk_size=chunk, **options,
        )  # fmt: skip
    gc.collect()
    return result.tokens[0], max(peaks)


@pytest.mark.parametrize(
    ("method", "chunk"), [("plain", 50), ("prompt-lookup", 50), ("speculative", None)]
)
def test_a_device_has_keys_and_values_of_two_layers(method: str, chunk: int | None) -> None:
    """A longer prompt takes what it takes beside the cache, and two layers' slots of six."""
    text = engine.tiny(1).config
    width = text.hidden_size // text.num_attention_heads
    slot = 2 * text.num_key_value_heads * width * 4  # bytes of a layer
    grown = []
    for options in ({}, OFFLOADED):
        (short, few), (long, many) = (
            measured(words, method, chunk, **options) for words in (150, 450)
        )
        grown.append((short, long, many - few))
    assert grown[0][:2] == grown[1][:2]
    assert grown[0][2] - grown[1][2] == (LAYERS - 2) * slot * 300


# Slots


@torch.inference_mode()
def filled(inputs: dict[str, Any], chunk: int | None, is_offloaded: bool) -> ModelRunner:
    """Returns a runner that has a prompt and a path of a tree, and has lost a row."""
    adapter = adapt(tiny.model("qwen3_vl"))
    prompt = adapter.embed_prompt(inputs)
    runner = ModelRunner(adapter, prompt.width + 12)
    if is_offloaded:
        offload(runner)
    runner.prefill(prompt, chunk)
    tokens = torch.arange(5, 5 + 4 * prompt.rows).view(prompt.rows, 4)
    parents = torch.tensor([[-1, -1, 1, 1]]).expand(prompt.rows, -1)
    runner.forward_tree(torch.full((prompt.rows,), 3), Tree.of(tokens, parents, [4] * prompt.rows))
    runner.commit([[0, 2, 4], [0], [0, 1]])
    runner.select_rows([2, 0])
    runner.forward_chain(torch.tensor([[7, 8], [9, 4]]))
    runner.commit([[0, 1], [0]])
    return runner


@pytest.mark.parametrize("chunk", [None, 6])
def test_host_memory_has_the_slots_of_the_device(chunk: int | None) -> None:
    inputs = tiny.inputs("qwen3_vl", "uneven", 3)
    device, host = (filled(inputs, chunk, is_offloaded) for is_offloaded in (False, True))
    assert isinstance(host.cache, OffloadedCache)
    assert host.lengths == device.lengths
    for row, length in enumerate(host.lengths):
        stacks = [runner.cache.read_page(row, 0, length) for runner in (device, host)]
        separate = [part for stack in stacks[0] for part in stack]
        assert len(separate) == len(stacks[1]) == 6  # keys and values of three layers
        for mine, other in zip(stacks[1], separate, strict=True):
            torch.testing.assert_close(mine[0], other, rtol=1e-5, atol=1e-6)


class LateStream(TorchDispatchMode):
    """A stream whose copies are made when another stream waits for it, and not before.

    What they are to fill is no number until then.
    """

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.has_waited, self.copies = False, 0

    def wait_stream(self, other: Any) -> None:
        """Another stream reads the windows."""
        self.has_waited = True

    def __enter__(self) -> LateStream:
        assert self.has_waited
        self.has_waited = False
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.copy_.default:
            return func(*args, **(kwargs or {}))
        assert not self.pending or self.pending[-1][1].shape == args[1].shape  # of one layer
        self.pending.append((args[0], args[1]))
        self.copies += 1
        return args[0].fill_(torch.nan)

    def finish(self) -> None:
        for target, source in self.pending:
            target.copy_(source)
        self.pending.clear()


@pytest.mark.parametrize("method", ["plain", "noisy-4", "sd-tree"])
def test_copies_may_come_as_late_as_they_are_waited_for(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, made = tiny.inputs("qwen2", "text", 3), matrix.METHODS[method]("qwen2")
    expected = sooner.generate(tiny.model("qwen2"), inputs, made, **GREEDY).tokens
    streams, allocate = list[LateStream](), OffloadedCache.allocate

    def with_stream(cache: Any, layer: Any, *states: Tensor) -> Any:
        windows = allocate(cache, layer, *states)
        if not cache._streams:
            streams.append(LateStream())
            cache._streams = {LateStream.device: streams[-1]}
        layer.stream = cache._streams[LateStream.device]
        return windows

    class Current:
        def __init__(self, device: Any) -> None: ...
        def wait_stream(self, stream: LateStream) -> None:
            stream.finish()

    monkeypatch.setattr(OffloadedCache, "allocate", with_stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Current)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: streams[-1].finish())
    result = sooner.generate(tiny.model("qwen2"), inputs, made, **GREEDY, **OFFLOADED)
    assert result.tokens == expected
    assert streams[0].copies > 6 * 5


# Models


REFUSED = {
    "qwen3_5", "qwen3_5_moe", "unlimited_ocr", "minicpm_ocr", "gemma3n", "gemma4", "lfm2_vl",
    "lfm3_vl", "minicpmv4_6", "minicpmv4_7", "nemotron_h_omni", "mllama",
}  # fmt: skip
"""Types whose layers have states, pictures' keys, or the keys of other layers."""
SOON = ("qwen2_5_vl", "mistral4", "gemma4_unified", "step3p7", "deepseek_ocr2", "gemma4", "mllama")
"""Types of the fast run: keys and values of two widths, of two shapes, behind windows, ..."""


@pytest.mark.parametrize(
    "species",
    [
        pytest.param(each, marks=[] if each.model_type in SOON else [pytest.mark.slow])
        for each in DECODED
    ],
    ids=str,
)
def test_every_type_says_what_its_generate_says_or_is_refused(species: Species) -> None:
    name, kind = laws.methods_of(species, "chain", "tree")[-1], species.kinds[-1]
    if species.model_type in REFUSED:
        with refused(sooner.UnsupportedError, "'offloaded' can't be honoured", "leave it unset"):
            laws.decoded(species, name, kind, **OFFLOADED)
        return
    output, stats = laws.decoded(species, name, kind, **OFFLOADED)
    assert output == laws.reference(species, kind)
    assert stats.mode == "exact"


def test_mixed_shapes_are_counted() -> None:
    """Bytes of windows and of host memory, which a run of one row takes."""
    for name in ("gemma4_unified", "mistral4", "qwen2_5_vl"):
        adapter = adapt(model_of(ZOO[name]))
        cache = OffloadedCache(adapter.layers, 63)
        shapes = kv_shapes(adapter.text_config)
        for number, (heads, *widths) in enumerate(shapes):
            states = (torch.ones(1, heads, 5, width, dtype=adapter.dtype) for width in widths)
            cache.update(*states, number)
        windows = {
            part.data_ptr(): part.nbytes for item in cache.slot_layers for part in item.whole
        }
        host = [part.nbytes for layer in cache.slot_layers for part in layer.host]
        rounded = sum(1 << (size - 1).bit_length() for size in host)
        assert offloaded_bytes(adapter, 64) == (sum(windows.values()), rounded)
        assert cache.nbytes() == sum(host) == 64 * adapter.slot_bytes


# Refusals


def test_an_engine_refuses_it() -> None:
    model, inputs = tiny.model("qwen2"), tiny.inputs("qwen2")
    batches = sooner.Engine(model)
    request = batches.add_request(inputs, **GREEDY, **OFFLOADED)
    batches.run()
    with refused(sooner.UnsupportedError, "'offloaded' can't be honoured in an engine"):
        raise request.error


def test_an_assistant_refuses_it() -> None:
    method = matrix.METHODS["assistant"]("qwen2")
    with refused(sooner.UnsupportedError, "the assistant reads", "leave it unset"):
        sooner.generate(tiny.model("qwen2"), tiny.inputs("qwen2"), method, **GREEDY, **OFFLOADED)


def test_steps_are_no_graphs() -> None:
    runner = ModelRunner(adapt(tiny.model("qwen2")), 8)
    assert why_not_padded(runner) is None
    offload(runner)
    assert why_not_padded(runner) == "keys and values lie in host memory"
    made = sooner.generate(
        tiny.model("qwen2"), tiny.inputs("qwen2"), **GREEDY, **OFFLOADED, compile=True
    )
    assert "graphs are off: keys and values lie in host memory" in made.stats.notes


def test_the_loop_of_generate_hands_the_option_on() -> None:
    """The cache that transformers makes for it, and leaves empty, needs a GPU."""
    config = GenerationConfig(**GREEDY, **OFFLOADED)
    ids = tiny.inputs("qwen2")["input_ids"]
    for kind in (None, "offloaded"):
        config.cache_implementation = kind
        call = hf_border.receive(tiny.model("qwen2"), ids, None, None, config, False, {})
        assert call.kv_offload is (kind is not None)


# On a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["plain", "prompt-lookup", "speculative", "sd-tree"])
@pytest.mark.parametrize("chunk", [None, 512])
def test_a_gpu_decodes_the_same_in_less_memory(method: str, chunk: int | None) -> None:
    model = engine.tiny(24).to("cuda")
    draft = engine.tiny(1).to("cuda")
    made = {
        "plain": sooner.Autoregressive(),
        "prompt-lookup": sooner.PromptLookup(),
        "speculative": sooner.Speculative(draft, num_draft_tokens=4),
        "sd-tree": sooner.SDTree(draft),
    }[method]
    ids = torch.randint(3, 90, (2, 6000), generator=torch.Generator().manual_seed(1)).cuda()
    tokens, peaks = [], []
    for options in ({}, OFFLOADED):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = sooner.generate(
            model, {"input_ids": ids}, made, **GREEDY, **options, prefill_chunk_size=chunk,
            graphs="off",
        )  # fmt: skip
        tokens.append(result.tokens)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    saved = adapt(model).slot_bytes * 2 * 6000 * 22 // 24
    assert tokens[0] == tokens[1]
    assert peaks[0] - peaks[1] > 0.9 * saved
