"""OpenVLA from a folder or the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download

from ...errors import SoonerError
from .checkpoint import is_published, list_some, load_published
from .config import OpenVLAConfig, read_object
from .model import OpenVLAForActionPrediction
from .processing import OpenVLAProcessor
from .statistics import read_statistics

FETCHED = ("*.json", "*.safetensors", "tokenizer.model", "*.jinja")


def load_policy(
    name: str,
    device: torch.device | str | None = None,
    dtype: Any = None,
    device_map: Any = None,
) -> tuple[OpenVLAForActionPrediction, OpenVLAProcessor]:
    """Load a policy in eval mode, attention by SDPA; no code of the checkpoint is run.

    Args:
        name: folder, or hub id, of a checkpoint as OpenVLA publishes them or as
            `save_pretrained` of model and processor wrote it.
        device: where the model goes; the CPU when left out.
        dtype: of the weights; `None` or `"auto"` leaves them as they are.
        device_map: instead of `device`: passed to transformers, which may shard the model.

    Raises:
        SoonerError: files or tensors are missing or do not fit; says which.
        UnsupportedError: an OpenVLA of other parts than those built in.
    """
    folder = fetched(name)
    config = read_object(folder / "config.json")
    if config is None:
        raise SoonerError(f"'{folder}' has no config.json; give an OpenVLA checkpoint")
    if is_published(config):
        model = load_published(folder, dtype, device, device_map)
    else:
        model = _load_trained(folder, device, dtype, device_map)
    return model, OpenVLAProcessor.from_pretrained(folder, model.config)


def fetched(name: str) -> Path:
    """Returns the folder of a checkpoint; one on the hub is downloaded, without its Python
    files.
    """
    if Path(name).is_dir():
        return Path(name)
    return Path(snapshot_download(name, allow_patterns=list(FETCHED)))


def _load_trained(
    folder: Path, device: torch.device | str | None, dtype: Any, device_map: Any
) -> OpenVLAForActionPrediction:
    config = OpenVLAConfig.from_pretrained(folder)
    statistics = read_statistics(folder)
    if statistics is not None:
        config.norm_stats = statistics
    options = {} if device_map is None else {"device_map": device_map}
    model, report = OpenVLAForActionPrediction.from_pretrained(
        folder, config=config, dtype=dtype or "auto", attn_implementation="sdpa",
        output_loading_info=True, **options,
    )  # fmt: skip
    for fault, key in (("lacks", "missing_keys"), ("has unknown", "unexpected_keys")):
        if report.get(key):
            raise SoonerError(
                f"'{folder}' {fault} {list_some(sorted(report[key]))}; save the policy again"
            )
    return (model if device is None or options else model.to(device)).eval()
