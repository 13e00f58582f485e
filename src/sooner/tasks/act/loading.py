"""A policy from a folder, the hub, or the package itself, with its draft head."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import SoonerError
from ...models.openvla import OpenVLA
from .. import loading
from .allowance import Allowance
from .policy import Policy

MINIATURE = "robot"


def load(
    model: str | None = None,
    head: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    device_map: Any = None,
    allowance: Allowance | None = None,
    unnorm_key: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Policy:
    """Load a policy.

    Args:
        model: hub id or folder of an OpenVLA checkpoint; `None` takes the bundled miniature, with
            its head unless another is given.
        head: folder of a draft head that was trained for it.
        device, dtype, device_map: as in `sooner.tasks.loading.load_pair`.
        allowance, unnorm_key, options: as in `Policy`.

    Raises:
        SoonerError: no such model, a model that is no policy, or as `Policy`.
    """
    where = loading.pick_device(device)
    kind = loading.pick_dtype(dtype, where, is_small=model is None)
    if model is None:
        model, head = _bundled(head)
    if (told := loading.model_type(model)) not in OpenVLA.model_types:
        raise SoonerError(
            f"model '{model}' of type '{told}' is no robot policy; give one of type "
            f"{', '.join(OpenVLA.model_types)}"
        )
    loaded = loading.load(model, where, kind, device_map)
    return Policy(
        loaded.model,
        loaded.processor,
        None if head is None else _head(head, loaded.model),
        allowance=allowance,
        name=model,
        unnorm_key=unnorm_key,
        options=options,
    )


def _bundled(head: str | None) -> tuple[str, str | None]:
    """Folders of the miniature and of a head.

    Raises:
        SoonerError: it is not installed.
    """
    from ... import miniatures

    small = miniatures.find(MINIATURE)
    if not (small.target / "config.json").is_file():
        raise SoonerError(
            f"the '{MINIATURE}' miniature is not in this installation; run `sooner train "
            f"miniature {MINIATURE}`, or give --model"
        )
    own = small.target.parent / "head"
    if head is None and (own / "config.json").is_file():
        head = str(own)
    return str(small.target), head


def _head(folder: str, model: Any) -> Any:
    from ...methods.eagle import EagleHead

    if not Path(folder).is_dir():
        raise SoonerError(f"head folder '{folder}' does not exist; check the path")
    weight = model.get_input_embeddings().weight
    return EagleHead.from_pretrained(folder, weight.device, weight.dtype)
