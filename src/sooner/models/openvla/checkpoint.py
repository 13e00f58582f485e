"""OpenVLA's published checkpoints: sharded safetensors under timm's and Llama's names.

Sizes of the towers come from the tensors, their heads from the timm ids, the decoder's sizes from
`text_config`. No code of the checkpoint is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Dinov2WithRegistersConfig, LlamaConfig, SiglipVisionConfig

from ...errors import SoonerError, UnsupportedError
from ..base import complain
from ..checkpoint import WEIGHTS, count_parts, fetched, read_object, read_state
from .config import OpenVLAConfig
from .model import OpenVLAForActionPrediction
from .processing import OpenVLAProcessor
from .published import DINO, HEADS, SIGLIP, current, is_unused, moves
from .statistics import FILE

SIZED = ("patch_embed.proj.weight", "pos_embed", "blocks.0.mlp.fc1.weight")
MEASURED = (DINO + "reg_token", *(tower + name for tower in (DINO, SIGLIP) for name in SIZED))
State = dict[str, Tensor]
CONFIG_NAMES = ("pad_to_multiple_of", "n_action_bins", "norm_stats", "pad_token_id")
WAY_OUT = "give a whole OpenVLA checkpoint (dinosiglip towers)"
_complain = partial(complain, way_out=WAY_OUT)


def load_policy(
    name: str, device: torch.device | str | None = None, dtype: Any = None, device_map: Any = None
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
    model = load_model(folder, device, dtype, device_map)
    return model, OpenVLAProcessor.from_pretrained(folder, model.config)


def load_model(
    folder: Path,
    device: torch.device | str | None = None,
    dtype: Any = None,
    device_map: Any = None,
) -> OpenVLAForActionPrediction:
    """Returns the model of a folder, see `load_policy`. A `dataset_statistics.json`, which
    fine-tuned checkpoints have, replaces the config's `norm_stats`."""
    raw = read_object(folder / "config.json")
    if raw is None:
        raise SoonerError(f"'{folder}' has no config.json; {WAY_OUT}")
    options = {"attn_implementation": "sdpa"}
    options |= {} if device_map is None else {"device_map": device_map}
    load = _load_trained if "dino_config" in raw else _load_published  # OpenVLA writes none
    model = load(folder, raw, None if dtype == "auto" else dtype, options)
    return (model if device is None or device_map is not None else model.to(device)).eval()


def _load_trained(folder: Path, raw: Mapping[str, Any], dtype: Any, options: Any) -> Any:
    config = OpenVLAConfig.from_pretrained(folder)
    config.norm_stats = read_object(folder / FILE) or config.norm_stats
    model, report = OpenVLAForActionPrediction.from_pretrained(
        folder, config=config, dtype=dtype or "auto", output_loading_info=True, **options
    )
    for fault, key in (("lacks", "missing_keys"), ("has unknown", "unexpected_keys")):
        _complain(folder, fault, sorted(report.get(key) or ()))
    return model


def _load_published(folder: Path, raw: Mapping[str, Any], dtype: Any, options: Any) -> Any:
    _refuse_what_is_not_built(folder, raw)
    state = {current(name): tensor for name, tensor in read_state(folder).items()}
    _complain(folder, "lacks", [] if state else [WEIGHTS])
    config = _config(folder, raw, state)
    ours = _renamed(folder, state, config, dtype)
    kind = next(iter(ours.values())).dtype
    return OpenVLAForActionPrediction.from_pretrained(
        None, config=config, state_dict=ours, dtype=kind, **options
    )


def _refuse_what_is_not_built(folder: Path, config: Mapping[str, Any]) -> None:
    ids = config.get("timm_model_ids") or []
    names = [str(name).split(".")[0] for name in ids]
    is_known = len(names) == 2 and "dinov2" in names[0] and "siglip" in names[1]
    if not is_known or any(name not in HEADS for name in names):
        raise UnsupportedError(
            f"'{folder}' has towers '{', '.join(map(str, ids))}', which are not built in; "
            f"built in are {', '.join(HEADS)}"
        )
    if any(config.get("timm_override_act_layers") or ()):
        raise UnsupportedError(f"'{folder}' overrides the towers' activation; GELU is built in")
    language = (config.get("text_config") or {}).get("model_type", "llama")
    if language != "llama":
        raise UnsupportedError(f"'{folder}' speaks through '{language}'; only 'llama' is built in")


def _config(folder: Path, raw: Mapping[str, Any], state: State) -> OpenVLAConfig:
    _complain(folder, "lacks", [name for name in MEASURED if name not in state])
    heads = [HEADS[str(name).split(".")[0]] for name in raw["timm_model_ids"]]
    sides = list(raw.get("image_sizes") or [None, None])
    dino = _tower(state, DINO, heads[0], sides[0])
    siglip = _tower(state, SIGLIP, heads[1], sides[-1])
    ratio, rest = divmod(dino.pop("intermediate_size"), dino["hidden_size"])
    if rest:  # transformers has the width of the MLP as a whole number of times; ViT-L has 4
        raise UnsupportedError(
            f"'{folder}' has a DINOv2 of width {dino['hidden_size']} whose MLP is no multiple of "
            "it; transformers can't build it"
        )
    registers = state[DINO + "reg_token"].shape[1]
    fields: dict[str, Any] = {name: raw[name] for name in CONFIG_NAMES if raw.get(name) is not None}
    fields["norm_stats"] = read_object(folder / FILE) or fields.get("norm_stats")
    return OpenVLAConfig(
        dino_config=Dinov2WithRegistersConfig(
            **dino, mlp_ratio=ratio, num_register_tokens=registers, layer_norm_eps=1e-6,
            hidden_act="gelu", qkv_bias=True,
        ),
        siglip_config=SiglipVisionConfig(**siglip, layer_norm_eps=1e-6, hidden_act="gelu"),
        text_config=LlamaConfig(**(raw.get("text_config") or {})),
        **fields,
    )  # fmt: skip


def _tower(state: State, tower: str, heads: int, side: int | None) -> dict[str, Any]:
    """Returns sizes of a tower without its last block."""
    width, _, patch, _ = state[tower + "patch_embed.proj.weight"].shape
    patches = state[tower + "pos_embed"].shape[1]
    return {
        "hidden_size": width,
        "patch_size": patch,
        "num_attention_heads": heads,
        "num_hidden_layers": count_parts(state, tower + "blocks.") - 1,
        "intermediate_size": state[tower + "blocks.0.mlp.fc1.weight"].shape[0],
        "image_size": isqrt(patches) * patch if side is None else int(side),
    }


def _renamed(folder: Path, state: State, config: OpenVLAConfig, dtype: Any) -> dict[str, Tensor]:
    """Our tensors by name, checked against the model that the config describes."""
    with torch.device("meta"):
        shapes = {
            name: tensor.shape
            for name, tensor in OpenVLAForActionPrediction(config).state_dict().items()
        }
    expected = moves(shapes)
    depths = {tower: count_parts(state, tower + "blocks.") for tower in (DINO, SIGLIP)}
    _complain(folder, "lacks", [name for name in expected if name not in state])
    extra = [name for name in state if name not in expected and not is_unused(name, depths)]
    _complain(folder, "has unknown", extra)
    ours: dict[str, Tensor] = {}
    for name, targets in expected.items():
        tensor = state.pop(name)
        for target, make in targets:
            made = make(tensor)
            if made.shape != shapes[target]:
                raise SoonerError(
                    f"'{folder}' has {name} of {list(tensor.shape)}, but the other sizes ask for "
                    f"{list(shapes[target])}; check its config.json"
                )
            ours[target] = made.to(dtype or made.dtype)
    return ours
