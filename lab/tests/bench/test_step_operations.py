"""Operations and bytes of a step are counted right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sooner_lab.bench.step import engine
from sooner_lab.bench.step.guard import fake_cuda
from sooner_lab.bench.step.operations import ATTENTION, Operations


def counted(call: Any) -> Operations:
    with Operations() as operations:
        call()
    return operations


@pytest.mark.parametrize("inference", [False, True])
def test_bytes_of_operations(inference: bool) -> None:
    with fake_cuda(), torch.inference_mode(inference):
        x, weights = torch.ones(2, 8), torch.ones(16, 8)
        store, at = torch.zeros(2, 1000), torch.zeros(2, 3, dtype=torch.long)
        rows = torch.zeros(3, dtype=torch.long)
        cases = {
            "linear": (lambda: torch.nn.functional.linear(x, weights), 4 * (16 + 128 + 32)),
            "add": (lambda: x + x[:1].expand(2, -1), 4 * (16 + 8 + 16)),
            "scatter": (lambda: store.scatter_(1, at, torch.ones_like(store[:, :3])), 24 + 24 + 48),
            "gather": (lambda: store.gather(1, at), 2 * 24 + 48),
            "index": (lambda: store[rows], 2 * 12_000 + 24),
            "put": (lambda: store.index_put_((rows, rows), x[0, :3]), 12 + 12 + 48),
            "embedding": (
                lambda: torch.nn.functional.embedding(rows, weights), 2 * 3 * 32 + 24),
            "copy": (lambda: store[:, :3].copy_(x[:, :3]), 24 + 24),
            "fill": (lambda: store.zero_(), 8000),
            "views": (lambda: store.view(-1)[3:].unsqueeze(0).t(), 0),
        }  # fmt: skip
        for name, (call, nbytes) in cases.items():
            made = 24 if name == "scatter" else 0  # `ones_like` writes its own
            assert counted(call).nbytes.total() == nbytes + made, name


def test_views_launch_nothing() -> None:
    x = torch.ones(4, 6)
    operations = counted(lambda: x.t().view(2, 3, 4).transpose(0, 1)[1].unsqueeze(0) + 1)
    assert dict(operations.launched) == {"aten::add": 1}
    assert operations.views.total() == 5


def test_attention_is_a_single_operation_that_reads_keys_and_values_once() -> None:
    with fake_cuda():
        query, keys = torch.ones(1, 4, 1, 16), torch.ones(1, 4, 100, 16)
        operations = counted(
            lambda: torch.nn.functional.scaled_dot_product_attention(query, keys, keys.clone())
        )
    assert operations.launched[ATTENTION] == 1
    assert operations.nbytes[ATTENTION] == 4 * 16 * 4 * (1 + 100 + 100 + 1)


def test_a_7b_plain_step_reads_its_weights_and_keys_once() -> None:
    config = engine.QWEN2_5_7B
    layers, hidden, length = 2, config["hidden_size"], 4096
    with fake_cuda(), torch.inference_mode():
        step = engine.hf_static(engine.qwen2_5_7b(layers), 1, length)
        step(1, 1)
        operations = counted(lambda: step(1, 1))
    kv = config["num_key_value_heads"] * 128
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * config["intermediate_size"]
    weights = 2 * (layers * layer + hidden * config["vocab_size"])
    slots = 2 * 2 * layers * (length + engine.ROOM) * kv
    assert weights + slots < operations.nbytes.total() < 1.01 * (weights + slots)
    assert operations.launched["aten::mm"] + operations.launched["aten::addmm"] == 7 * layers + 1
