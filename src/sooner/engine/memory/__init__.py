"""The memory of an engine: pages of slots, prefixes that requests share, encoded pictures.

Here is how much of it is free, and the error that says how much there was not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import MemoryRanOutError, is_out_of_memory
from ..cache import kv_shapes
from ..runner import GRAPHS

ON_CPUS = 4 << 30
"""Bytes at most where the memory is the machine's, unless an engine sets another limit."""


def gpus_of(model: Any) -> list[torch.device]:
    """The CUDA devices that a model lies on; none if a part of it does not."""
    names = set((getattr(model, "hf_device_map", None) or {}).values())
    if "disk" in names:
        return []
    devices = {torch.device(device) for device in names} or {model.device}
    return list(devices) if all(device.type == "cuda" for device in devices) else []


def free_bytes(device: torch.device, share: float) -> int:
    """Returns bytes of a GPU that `share` of it leaves beside what is used already."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return int(share * total) - (total - free)


def out_of_memory(
    error: Exception, model: Any, ids: Tensor, max_new_tokens: int | None
) -> MemoryRanOutError | None:
    """Returns the error to show if memory ran out: an estimate and a way out."""
    if not is_out_of_memory(error) or isinstance(error, MemoryRanOutError):
        return None  # the latter says itself what was too much
    if (idle := vars(model).get(GRAPHS)) is not None:
        idle.clear()  # caches and graphs that earlier calls left for later ones
    shapes = kv_shapes(model.config.get_text_config(decoder=True))
    rows, slots = ids.shape[0], ids.shape[1] + (max_new_tokens or 0)
    size = sum(heads * (key + value) for heads, key, value in shapes) * model.dtype.itemsize
    size *= rows * slots
    return MemoryRanOutError(
        f"out of memory: the cache of {rows} x {slots} tokens alone takes about "
        f"{size / 2**30:.2f} GiB; lower the number of frames, max_new_tokens or the batch"
    )
