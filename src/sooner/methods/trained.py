"""Trained drafters as people publish them: what a folder holds, and the method that runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SoonerError, UnsupportedError
from ..registry import choices
from .base import Method
from .checks import hub_problem
from .published import CONFIG, read_config, tensor_files

HEAD = "head"
Predicate = Callable[[Mapping[str, Any], set[str]], bool]
Loader = Callable[..., Any]


@dataclass(frozen=True)
class Kind:
    """Holds one kind of trained drafter.

    Attributes:
        name: what people call it.
        method: the method that runs it, by its name.
        fits: tells it by config.json and the names of its tensors.
        load: what the method takes for its drafter, of folder and config.json; and of `layer_ids`
            if it can read others than the config means.
        also: further methods that run it.
    """

    name: str
    method: str
    fits: Predicate
    load: Loader
    also: tuple[str, ...] = ()


def known_kinds() -> tuple[Kind, ...]:
    """Returns the kinds that can be run, in the order in which they are told apart. Their modules
    are for those who have a drafter."""
    from .assistant.loader import load as load_assistant
    from .assistant.sizes import is_assistant
    from .dflash.config import is_dflash
    from .dflash.denoiser import DFlashModel
    from .eagle.eagle3 import load_eagle3
    from .eagle.head import EagleHead
    from .eagle.mtp import is_mtp, load_mtp
    from .eagle.published import is_eagle3

    return (
        Kind(
            "sooner's draft head",
            "eagle",
            lambda config, names: config.get("model_type") == "eagle_head",
            lambda folder, config: EagleHead.from_pretrained(folder),
        ),
        Kind(
            "DFlash",
            "dflash",
            lambda config, names: is_dflash(config),
            lambda folder, config: DFlashModel.from_pretrained(folder),
            also=("ddtree",),
        ),
        Kind("EAGLE-3", "eagle", is_eagle3, load_eagle3),
        Kind("native MTP", "eagle", is_mtp, load_mtp),
        Kind(
            "Gemma 4's assistant",
            "assistant",
            lambda config, names: is_assistant(config),
            load_assistant,
        ),
    )


REFUSED: Mapping[str, str] = {
    "dflash2": "DFlash2", "selector_rank": "DFlash2", "conv_kernel_size": "DFlash2",
    "domino": "Domino", "dspark": "DSpark", "peagle": "P-EAGLE", "medusa": "Medusa",
    "hydra": "Hydra", "mlp_speculator": "an MLP speculator", "mlpspeculator": "an MLP speculator",
}  # fmt: skip
"""Words in configs and names of tensors that tell kinds which are not run."""


def load_drafter(
    path_or_name: Path | str, *, layer_ids: Sequence[int] | None = None, **options: Any
) -> Method:
    """Returns the method that decodes with a trained drafter; the files tell what it is.

    Args:
        path_or_name: a folder, or a repository of the model hub.
        layer_ids: the target's `hidden_states` that it reads, where its config means others.
        options: of the method, such as `nodes` or `depth` of `Eagle`.

    Raises:
        SoonerError: no such folder, files that don't fit together, or an unknown option.
        UnsupportedError: a drafter of another kind; says what it would take.
    """
    folder = find_folder(path_or_name)
    config = read_config(folder)
    kind = kind_of(folder, config)
    method = choices()[kind.method].load()
    if layer_ids is None:
        drafter = kind.load(folder, config)
    elif "layer_ids" in inspect.signature(kind.load).parameters:
        drafter = kind.load(folder, config, layer_ids=layer_ids)
    else:
        raise SoonerError(f"load_drafter: {kind.name} reads no layers by layer_ids; leave it out")
    try:
        made: Method = method(drafter, **options)
    except TypeError as error:
        raise SoonerError(f"load_drafter: {kind.name} is run by {method.__name__}: {error}") from (
            error
        )
    return made


def method_of(path_or_name: Path | str) -> str:
    """Returns the name of the method that runs a drafter."""
    folder = find_folder(path_or_name)
    return kind_of(folder, read_config(folder)).method


def load_for(method: str, path_or_name: Path | str) -> Any:
    """Returns what `method` takes for its drafter.

    Raises:
        SoonerError: the folder holds a drafter of another method.
        UnsupportedError: one that no method runs.
    """
    folder = find_folder(path_or_name)
    config = read_config(folder)
    kind = kind_of(folder, config)
    if method not in (kind.method, *kind.also):
        raise SoonerError(
            f"'{path_or_name}' is {kind.name}, which method '{kind.method}' runs, not '{method}'"
        )
    return kind.load(folder, config)


def find_folder(path_or_name: Path | str) -> Path:
    """The folder of a drafter, fetched from the model hub where it is none here.

    What `sooner train draft -o FOLDER` wrote may be named by that folder, in which the drafter is
    `head`.

    Raises:
        SoonerError: no such folder, and no such repository.
    """
    folder = Path(path_or_name)
    if not (folder / CONFIG).is_file() and (folder / HEAD / CONFIG).is_file():
        return folder / HEAD
    name = str(path_or_name)
    if folder.exists() or name.count("/") != 1 or name.startswith((".", "/", "~")):
        return folder
    from huggingface_hub import snapshot_download, try_to_load_from_cache

    is_here = isinstance(try_to_load_from_cache(name, CONFIG), str)  # fetched before
    if not is_here and (reason := hub_problem()) is not None:
        raise SoonerError(f"drafter '{name}' is no folder here, and {reason}")
    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.bin"]))
    except Exception as error:  # a dozen kinds, of HTTP, of names, of files
        raise SoonerError(
            f"drafter '{name}' is no folder here, and the hub gave no repository for it "
            f"({type(error).__name__}); check the name, or download it"
        ) from error


def kind_of(folder: Path, config: Mapping[str, Any]) -> Kind:
    """Returns what a drafter is.

    Raises:
        UnsupportedError: one that no method runs.
    """
    names, kinds = set(tensor_files(folder)), known_kinds()
    known = ", ".join(kind.name for kind in kinds)
    options = config.get("dflash_config") or {}
    values = [config.get(name) for name in ("speculators_model_type", "model_type")]
    values += [*(config.get("architectures") or []), config.get("projector_type")]
    text = " ".join(map(str, [*values, options.get("projector_type"), *config, *options, *names]))
    if refused := next((kind for word, kind in REFUSED.items() if word in text.lower()), None):
        raise UnsupportedError(f"'{folder}' is {refused}, which is not run; known: {known}")
    for kind in kinds:
        if kind.fits(config, names):
            return kind
    if any(name.removeprefix("model.").startswith(("fc.", "layers.0.")) for name in names):
        raise UnsupportedError(
            f"'{folder}' is an EAGLE-1 or EAGLE-2 head as published, whose layout is not read; "
            "train one with `sooner train draft`, or give an EAGLE-3 head"
        )
    raise UnsupportedError(
        f"'{folder / CONFIG}' is of model_type {config.get('model_type')!r}, "
        f"no drafter that is known; known: {known}"
    )
