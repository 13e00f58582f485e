"""A static step as the engine is to have it: slots on the device, and attention that declares its
keys and values once. A fault can be planted in it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from sooner_lab.bench.step.factories import LARGEST, ROOM, Step, StepFactory
from sooner_lab.bench.step.operations import touched

NAME = "slots_of_a_test"


@torch.library.custom_op("sooner_lab_test::slots", mutates_args=())
def slots(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """`[rows, entries, heads, dim]`; GQA is not expanded."""
    rows, heads, entries, dim = query.shape
    kv_heads, capacity = keys.shape[1], keys.shape[2]
    offset = torch.arange(capacity, device=query.device) - lengths[:, None]  # [rows, slots]
    seen = offset[:, None] <= torch.arange(entries, device=query.device)[None, :, None]
    grouped = query.reshape(rows, kv_heads, heads // kv_heads, entries, dim)
    scores = torch.einsum("rkged,rkcd->rkgec", grouped, keys) * dim**-0.5
    weights = scores.masked_fill(~seen[:, None, None], float("-inf")).softmax(-1)
    out = torch.einsum("rkgec,rkcd->rkged", weights, values)
    return out.reshape(rows, heads, entries, dim).transpose(1, 2).contiguous()


@slots.register_fake
def _(query: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    rows, heads, entries, dim = query.shape
    return query.new_empty(rows, entries, heads, dim)


def declared(args: Any, kwargs: Any, result: Tensor) -> int:
    query, keys, values, _ = args
    return touched(query) + touched(keys) + touched(values) + touched(result)


def attention(module: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Any, **more: Any):
    return slots(query, keys, values, more["slot_lengths"]), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, lambda *_, **__: None)


class Owner:
    """Slots that a block is written to, `[rows, entries]`."""

    places: Tensor


class SlotLayer(CacheLayerMixin):
    is_compileable, is_sliding = True, False

    def __init__(self, owner: Owner, shape: tuple[int, ...], model: Any) -> None:
        super().__init__()
        self.owner, self.is_initialized = owner, True
        self.keys = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.values = torch.zeros_like(self.keys)

    def lazy_initialization(self, *_: Any) -> None: ...

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        index = self.owner.places[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3])
        self.keys.scatter_(2, index, keys)
        self.values.scatter_(2, index, values)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    get_max_cache_shape = get_max_length


def build(model: Any, rows: int, length: int, fault: Any = None) -> Step:
    """Forward, greedy verification of a chain, commit; `fault(lengths)` runs inside."""
    model.set_attn_implementation(NAME)
    config = model.config
    width = config.hidden_size // config.num_attention_heads
    lengths = torch.full((rows,), length, device=model.device)
    tokens = torch.zeros(rows, LARGEST, dtype=torch.long, device=model.device)
    shape = (rows, config.num_key_value_heads, length + ROOM, width)
    owner = Owner()
    cache = Cache([SlotLayer(owner, shape, model) for _ in range(config.num_hidden_layers)])

    def step(rows: int, entries: int) -> None:
        block = tokens[:rows, :entries]
        owner.places = lengths[:, None] + torch.arange(entries, device=lengths.device)
        states = model.model(
            input_ids=block, position_ids=owner.places, past_key_values=cache, use_cache=True,
            slot_lengths=lengths,
        )  # fmt: skip
        choices = model.lm_head(states.last_hidden_state).argmax(-1)  # [rows, entries]
        accepted = (choices[:, :-1] == block[:, 1:]).long().cumprod(1).sum(1)
        lengths.add_(accepted).add_(1)
        if fault is not None:
            fault(lengths)

    return step


FACTORY = StepFactory("plain", 1, build, {"sooner_lab_test::slots": declared})
