"""The same arms on quantised weights (tables 5 and 6), where torchao is installed."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from sooner.tasks.act.allowance import Allowance
from sooner.tasks.act.policy import Policy

from .arms import Loader
from .observations import Recorded
from .settings import ActSettings

Progress = Callable[[str], None]
GROUP = 32
"""Weights that share a scale in int4."""


def weights(
    settings: ActSettings, make: Loader, recorded: list[Recorded], progress: Progress
) -> list[dict[str, Any]]:
    """A row for each kind of weights: its plain speed, what speculation adds, and its actions.

    The decoder's linear layers are quantised, towers and draft head are not; as in the paper, the
    head was trained for the unquantised target.
    """
    if importlib.util.find_spec("torchao") is None:
        note = "torchao is not installed: pip install 'sooner-lab[bench]'"
        return [{"weights": "int8, int4", "note": note}]
    rows: list[dict[str, Any]] = []
    base = _timed(make(Allowance(settings.chosen)), recorded, settings.repeats)
    for name, quantise in KINDS.items():
        progress(f"weights: {name}")
        try:
            policy = _quantised(make, settings, quantise)
            found = _timed(policy, recorded, settings.repeats)
        except (RuntimeError, ImportError, AssertionError, NotImplementedError) as error:
            rows.append({"weights": name, "note": str(error).splitlines()[0][:120]})
            continue
        rows.append(
            {
                "weights": name,
                "plain_speed": base["plain"] / found["plain"],
                "speedup": found["plain"] / found["relaxed"],
                "same_action": float((found["ids"] == base["ids"]).mean()),
            }
        )
    return rows


def _quantised(
    make: Loader, settings: ActSettings, quantise: Callable[[nn.Module], None]
) -> Policy:
    first = make(None)
    model = copy.deepcopy(first.model)
    quantise(model.get_decoder())
    return Policy(
        model, first.processor, first.head, allowance=Allowance(settings.chosen),
        name=first.name, unnorm_key=settings.unnorm_key, options=first.options,
    )  # fmt: skip


def _timed(policy: Policy, recorded: list[Recorded], repeats: int) -> dict[str, Any]:
    """Median seconds of decoding behind the first token, plain and relaxed in turn."""
    methods = ("plain",) if policy.head is None else ("plain", "relaxed")
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    ids = []
    for turn in range(1 + repeats):
        for one in recorded:
            for name in methods:
                action = policy.act([one.seen], method=name)[0]
                if turn:
                    seconds[name].append(action.stats.decode_seconds)
                if turn == 1 and name == "plain":
                    ids.append(action.ids)
    medians = {name: median(values) for name, values in seconds.items()}
    return {"relaxed": medians["plain"], **medians, "ids": np.stack(ids)}


def _int8(decoder: nn.Module) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(decoder, Int8WeightOnlyConfig())


def _int4(decoder: nn.Module) -> None:
    from torchao.quantization import IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    kind: Any = torch  # its stubs don't know the type yet
    config = IntxWeightOnlyConfig(weight_dtype=kind.int4, granularity=PerGroup(GROUP))
    quantize_(decoder, config)


KINDS: dict[str, Callable[[nn.Module], None]] = {"int8": _int8, "int4": _int4}
