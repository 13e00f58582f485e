"""Decoders that take blocks: `generate`'s ids from static slots, and nothing left behind."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.library import opcheck
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import tiny
from attention_cases import case
from sooner import MMInference
from sooner.engine.attention.block import Block, block_slots, tree_block
from sooner.engine.attention.context import attending_to_blocks, block_arguments
from sooner.engine.attention.ops import block_attention

TEXT = {
    "vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 3, "head_dim": 16, "pad_token_id": 0,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
SLIDING = {
    "sliding_window": 6,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
BUILDERS: dict[str, Any] = {
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TEXT)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**TEXT | SLIDING, attn_logit_softcapping=5.0)
    ),
    "gemma3": lambda: transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(**TEXT | SLIDING)
    ),
    "gpt_oss": lambda: transformers.GptOssForCausalLM(
        transformers.GptOssConfig(
            **TEXT | SLIDING, num_local_experts=2, num_experts_per_tok=1
        )
    ),
    "llama4": lambda: transformers.Llama4ForCausalLM(
        transformers.Llama4TextConfig(
            **TEXT, attention_chunk_size=8, intermediate_size_mlp=64, num_local_experts=2,
            attn_temperature_tuning=False, moe_layers=[], no_rope_layers=[1, 1, 0],
        )
    ),
}  # fmt: skip


def build(family: str) -> Any:
    torch.manual_seed(0)
    model = BUILDERS[family]().eval()
    for weights in model.parameters():
        weights.data.add_(torch.randn_like(weights) * 0.1)
    return model


class SlotLayer(CacheLayerMixin):
    """`[rows, kv_heads, capacity, dim]`, poisoned, written where the block says."""

    is_compileable, is_sliding = True, False

    def __init__(self, owner: Slots) -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, keys: Tensor, values: Tensor) -> None:
        rows, heads, _, dim = keys.shape
        shape = (rows, heads, self.owner.capacity, dim)
        self.keys, self.values = (part.new_full(shape, torch.nan) for part in (keys, values))
        self.is_initialized = True

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        slots = block_slots(self.owner.block, keys.shape[2], self.owner.capacity)
        index = slots[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3])
        self.keys.scatter_(2, index, keys)
        self.values.scatter_(2, index, values)
        return (keys, values) if self.owner.first else (self.keys, self.values)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length if self.owner.first else self.owner.capacity, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.owner.capacity

    get_max_cache_shape = get_max_length


class Slots(Cache):
    def __init__(self, model: Any, rows: int, capacity: int = 96) -> None:
        layers = model.config.get_text_config().num_hidden_layers
        super().__init__(layers=[SlotLayer(self) for _ in range(layers)])
        self.capacity, self.first = capacity, False
        self.lengths = torch.zeros(rows, dtype=torch.long)
        self.block = Block(self.lengths)


def forward(model: Any, cache: Slots, tokens: Tensor, block: Block) -> Tensor:
    """Logits `[rows, entries, vocab]` of a block."""
    depths = (
        torch.arange(tokens.shape[1], device=tokens.device)
        if block.depths is None
        else block.depths
    )
    cache.block = block
    states = model.model(
        input_ids=tokens,
        position_ids=block.lengths[:, None] + depths,
        past_key_values=cache,
        use_cache=True,
        **block_arguments(block),
    )
    return model.lm_head(states.last_hidden_state)


def prefill(model: Any, cache: Slots, prompts: Tensor, sizes: Tensor, chunk: int) -> Tensor:
    """The first token of each row; only a prompt that is one chunk takes the model's own path."""
    rows, width = prompts.shape
    if chunk >= width:
        cache.first = True
        cache.block = Block(cache.lengths, sizes)
        where = torch.arange(width)[None].expand(rows, -1)
        states = model.model(input_ids=prompts, position_ids=where, past_key_values=cache)
        logits = model.lm_head(states.last_hidden_state)
        cache.first = False
    else:
        parts = []
        for start in range(0, width, chunk):
            part = prompts[:, start : start + chunk]
            block = Block(torch.full((rows,), start), (sizes - start).clamp(0, part.shape[1]))
            parts.append(forward(model, cache, part, block))
        logits = torch.cat(parts, 1)
    cache.lengths = sizes
    return logits[torch.arange(rows), sizes - 1].argmax(-1)


def decode(model: Any, prompts: list[list[int]], truth: list[list[int]], chunk: int) -> list:
    """Greedy ids; drafts are trees whose first branch is wrong and whose second is partly right."""
    sizes = torch.tensor([len(prompt) for prompt in prompts])
    padded = torch.tensor([prompt + [0] * (int(sizes.max()) - len(prompt)) for prompt in prompts])
    cache = Slots(model, len(prompts))
    outputs = [[int(token)] for token in prefill(model, cache, padded, sizes, chunk)]
    parents = [-1, 0, -1, 2, 3]  # a wrong chain of two, a chain of three
    count = len(truth[0])
    while min(map(len, outputs)) < count:
        blocks, real = [], []
        for row, ids in zip(truth, outputs, strict=True):
            right = [*row, 1, 1, 1, 1][len(ids) : len(ids) + 3]
            blocks.append([ids[-1], (right[0] + 1) % 96, 5, *right[:2], (right[2] + 1) % 96])
            real.append(6 if len(ids) % 3 else 1 if len(ids) < count else 0)
        tree = tree_block(cache.lengths, torch.tensor([parents] * len(outputs)), torch.tensor(real))
        choices = forward(model, cache, torch.tensor(blocks), tree).argmax(-1)
        for row, ids in enumerate(outputs):
            path, entry = [0], 0
            while True:
                token = int(choices[row, entry])
                ids.append(token)
                below = [1 + node for node, parent in enumerate(parents) if parent == entry - 1]
                matches = [
                    child for child in below if child < real[row] and blocks[row][child] == token
                ]
                if not matches:
                    break
                entry = matches[0]
                path.append(entry)
            if not real[row]:
                ids.pop()
                continue
            base = int(cache.lengths[row])
            for layer in cache.layers:
                for store in (layer.keys, layer.values):
                    states = store[row, :, [base + entry for entry in path]].clone()
                    store[row, :, base : base + len(path)] = states
            cache.lengths = cache.lengths.clone()
            cache.lengths[row] += len(path)
    return [ids[:count] for ids in outputs]


def generate(model: Any, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                          max_new_tokens=count, min_new_tokens=count)  # fmt: skip
    return made[0, len(prompt) :].tolist()


@torch.no_grad()
@pytest.mark.parametrize("chunk", [99, 5])
@pytest.mark.parametrize("family", BUILDERS)
def test_trees_over_static_slots_give_generate_s_ids(family: str, chunk: int) -> None:
    model = build(family)
    draw = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, 90, (size,), generator=draw).tolist() for size in (13, 4, 9)]
    truth = [generate(model, prompt, 20) for prompt in prompts]
    with attending_to_blocks(model.config):
        assert decode(model, prompts, truth, chunk) == truth


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_everything_else_runs_what_the_model_was_loaded_with(attention: str) -> None:
    model = build("qwen2")
    model.set_attn_implementation(attention)
    ids = torch.tensor([[1, 2, 3, 4], [0, 0, 7, 8]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    plain = model(input_ids=ids, attention_mask=mask).logits
    before = set(ALL_ATTENTION_FUNCTIONS.keys())
    with attending_to_blocks(model.config):
        assert model.config._attn_implementation == f"sooner_block_{attention}"
        assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, plain)
        seen = []
        other = threading.Thread(
            target=lambda: seen.append(model(input_ids=ids, attention_mask=mask).logits)
        )
        other.start()
        other.join()
        assert torch.equal(seen[0], plain)
    assert model.config._attn_implementation == attention
    assert set(ALL_ATTENTION_FUNCTIONS.keys()) == before


def test_the_config_is_put_back_after_errors_and_when_the_last_run_ends() -> None:
    config = transformers.Qwen2Config(**TEXT)
    config._attn_implementation = "sdpa"
    with pytest.raises(RuntimeError, match="stop"), attending_to_blocks(config):
        raise RuntimeError("stop")
    assert config._attn_implementation == "sdpa"
    first, second = attending_to_blocks(config), attending_to_blocks(config)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert config._attn_implementation == "sooner_block_sdpa"
    second.__exit__(None, None, None)
    assert config._attn_implementation == "sdpa"


def test_vision_towers_keep_their_attention() -> None:
    model = copy.deepcopy(tiny.model("qwen2_5_vl"))
    with attending_to_blocks(model.config.get_text_config(decoder=True)):
        assert model.config.vision_config._attn_implementation == "sdpa"
        layer = model.get_decoder().layers[0].self_attn
        assert layer.config._attn_implementation == "sooner_block_sdpa"


@torch.no_grad()
def test_a_sparse_prefill_context_keeps_its_prompts_and_blocks_are_ours() -> None:
    model = copy.deepcopy(tiny.model("qwen2"))
    config = model.config
    ids = torch.arange(3, 40)[None]
    with MMInference.auto(dense_below=1)(model) as report:
        name = config._attn_implementation
        with attending_to_blocks(config):
            cache = Slots(model, 1)
            prefill(model, cache, ids, torch.tensor([37]), 99)
            model(input_ids=ids)
            forward(model, cache, torch.tensor([[4, 5]]), Block(cache.lengths))
        assert config._attn_implementation == name
        assert report.prefills
    assert config._attn_implementation == "sdpa"


@torch.no_grad()
def test_a_sparse_context_may_end_before_the_run_does() -> None:
    model = copy.deepcopy(tiny.model("qwen2"))
    sparse = MMInference.auto()(model)
    sparse.__enter__()
    with attending_to_blocks(model.config):
        sparse.__exit__(None, None, None)
    assert model.config._attn_implementation == "sdpa"


@torch.no_grad()
@pytest.mark.parametrize("family", ["qwen2", "llama", "gemma2", "gemma3"])
def test_a_step_runs_on_fake_cuda_tensors(family: str) -> None:
    """Reading lengths would raise: `.tolist()` of a fake tensor has no value."""
    with FakeTensorMode(), torch.device("cuda"):
        torch.manual_seed(0)
        model = BUILDERS[family]().eval()
        with attending_to_blocks(model.config):
            for entries in (1, 4, 16):
                cache = Slots(model, 2)
                lengths = torch.zeros(2, dtype=torch.long)
                parents = torch.zeros(2, entries - 1, dtype=torch.long) - 1
                logits = forward(
                    model, cache, torch.zeros(2, entries, dtype=torch.long),
                    tree_block(lengths, parents, torch.ones(2, dtype=torch.long)),
                )  # fmt: skip
                assert (logits.shape, logits.device.type) == ((2, entries, 96), "cuda")


@torch.no_grad()
@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_a_step_is_a_single_graph_whatever_the_lengths(family: str) -> None:
    model, graphs = build(family), []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(sum("block_attention" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    def step(tokens: Tensor, lengths: Tensor, parents: Tensor) -> Tensor:
        return forward(model, cache, tokens, tree_block(lengths, parents))

    tokens = torch.tensor([[4, 5, 6, 7]])
    parents = torch.tensor([[-1, 0, -1]])
    cache = Slots(model, 1)
    with attending_to_blocks(model.config):
        prefill(model, cache, torch.arange(3, 12)[None], torch.tensor([9]), 99)
        torch._dynamo.reset()
        compiled = torch.compile(step, fullgraph=True, dynamic=False, backend=count)
        for length in (9, 10, 12):
            lengths = torch.tensor([length])
            torch.testing.assert_close(
                compiled(tokens, lengths, parents), step(tokens, lengths, parents)
            )
    assert graphs == [model.config.num_hidden_layers]


def test_the_operator_is_registered_as_torch_wants_it() -> None:
    example = case([20, 30], 5, tree=True)
    arguments = (*example.arguments[:3], *example.block, 0.25, 8, None, None, None)
    opcheck(
        torch.ops.sooner.block_attention.default, arguments,
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip
    made = block_attention(*example.arguments)
    assert made.transpose(1, 2).is_contiguous()
