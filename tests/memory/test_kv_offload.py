"""Keys and values in host memory: the same tokens, and two layers' worth of them on the device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GenerationConfig

import method_matrix as matrix
import sooner
import tiny
from assistants import assistant
from methods.doors import refused
from sooner.engine.memory.offload import OffloadedCache, offload, offloaded_bytes
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.models import adapt
from sooner.models.hooks import ForwardHooks
from sooner_lab.bench.step import engine
from sooner_lab.bench.step.simulated import DEVICE, SimulatedTensor, simulated_device, to_device
from zoo import laws
from zoo.species import Species, model_of
from zoo.zoo import DECODED, ZOO

OFFLOADED: dict[str, Any] = {"cache_implementation": "offloaded"}
GREEDY: dict[str, Any] = {"max_new_tokens": 21, "eos_token_id": None, "do_sample": False}
METHODS = ("plain", "prompt-lookup", "noisy-4", "noisy-auto", "parallel", "eagle")


def runs(family: str, kind: str, method: str, rows: int, **options: Any) -> list[Any]:
    """Returns a run with keys and values on the device, and one with them in host memory."""
    inputs, made = tiny.inputs(family, kind, rows), matrix.METHODS[method](family)
    return [
        sooner.generate(tiny.model(family), inputs, made, **{**GREEDY, **options, **more})
        for more in ({}, OFFLOADED)
    ]


# Tokens


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rows", "chunk"), [(1, None), (1, 5), (3, None), (5, 4)])
def test_tokens_are_those_of_a_run_on_the_device(method: str, rows: int, chunk: int | None) -> None:
    device, host = runs("qwen3_vl", "mixed", method, rows, prefill_chunk_size=chunk)
    assert host.tokens == device.tokens
    assert (host.stats.mode, host.stats.num_alarms if False else host.stats.alarms) == ("exact", 0)
