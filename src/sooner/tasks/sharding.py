"""A target sharded over the processes of `torchrun` by transformers' tensor parallelism."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from transformers import AutoConfig

from ..errors import SoonerError
from ..models.ranks import Ranks

NAMED = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Environment variables that `torchrun` sets for its processes."""
PATIENCE = timedelta(hours=2)
"""Timeout of the process group: ranks load large checkpoints at different speeds."""


def join(device: str = "auto") -> Ranks:
    """Make this process one of `torchrun`'s ranks, on a device of its own.

    A process group that is there already is taken as it is.

    Args:
        device: `auto`, or the kind of device that there is anyway.

    Raises:
        SoonerError: no `torchrun`, or a device that is not for the caller to choose.
    """
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("auto", kind):
        raise SoonerError(
            f"device is '{device}', but tp_plan puts each rank on a device of its own ({kind}); "
            "leave device at auto"
        )
    if not distributed.is_initialized() and any(name not in os.environ for name in NAMED):
        raise SoonerError(
            "tp_plan shards over processes, and this is one alone; start it by `torchrun "
            "--nproc-per-node N`, or use device_map"
        )
    here = torch.device(kind)
    if kind == "cuda":
        here = torch.device(kind, int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(here)
    if not distributed.is_initialized():
        if kind == "cuda":
            distributed.init_process_group("nccl", timeout=PATIENCE, device_id=here)
        else:
            distributed.init_process_group("gloo", timeout=PATIENCE)
    return Ranks(None, here)


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Runs a block with the other ranks, to the end; ranks other than 0 write nothing to stdout.

    After an error the others may wait in a forward for ever: the process group stays then, and
    `torchrun` ends them when this process has ended.

    Raises:
        SoonerError: as `join`.
    """
    ranks = join(device)
    quiet = nullcontext if ranks.is_rank_zero else redirect_stdout
    with open(os.devnull, "w") as nowhere, quiet(nowhere):
        yield ranks
    if distributed.is_initialized():
        distributed.destroy_process_group()  # without it torch warns at exit


def check_plan(name: str, plan: Any) -> None:
    """Refuse a model that can't be sharded over as many ranks as there are.

    Raises:
        SoonerError: transformers has no plan for its decoder, or its heads can't be dealt out.
    """
    config = AutoConfig.from_pretrained(name).get_text_config(decoder=True)
    published = getattr(config, "base_model_tp_plan", None) or {}
    # Some types have a plan for their embedding alone.
    if plan == "auto" and not any(part.startswith("layers.") for part in published):
        raise SoonerError(
            f"transformers has no tensor-parallel plan for '{name}' of type "
            f"'{config.model_type}'; use device_map, or give tp_plan as a dict"
        )
    ranks = distributed.get_world_size()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if heads % ranks:
        raise SoonerError(
            f"'{name}' has {heads} key-value heads, which {ranks} ranks can't share evenly; start "
            "as many processes as divide them"
        )


def plan_options(plan: Any) -> dict[str, Any]:
    """Returns what `from_pretrained` calls a plan in this version of transformers."""
    from transformers.distributed import DistributedConfig

    if "tp_plan" in inspect.signature(DistributedConfig).parameters:
        return {"distributed_config": DistributedConfig(tp_plan=plan)}
    return {"tp_plan": plan}
