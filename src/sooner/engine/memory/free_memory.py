"""Memory that is free for an engine's keys and values."""

from __future__ import annotations

from typing import Any

import torch

ON_CPUS = 4 << 30
"""Bytes at most where the memory is the machine's, unless an engine is told otherwise."""


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
