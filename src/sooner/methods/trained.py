"""Trained drafters as people publish them: what a folder holds, and the method that runs it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SoonerError, UnsupportedError
from ..registry import choices
from .base import Method
from .checks import hub_problem

CONFIG, HEAD = "config.json", "head"
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
    from .dflash.loader import load as load_dflash
    from .eagle.head import EagleHead
    from .eagle.mtp_layouts import is_mtp
    from .eagle.mtp_published import load_mtp
    from .eagle.published import is_eagle3, load_eagle3

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
            lambda folder, config: load_dflash(folder),
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


def _mentions(*words: str) -> Predicate:
    """Returns whether architectures, types or tensors of a drafter have one of these words."""

    def fits(config: Mapping[str, Any], names: set[str]) -> bool:
        values = [config.get("speculators_model_type"), config.get("model_type")]
        values += [*(config.get("architectures") or []), config.get("projector_type")]
        values += [(config.get("dflash_config") or {}).get("projector_type")]
        return any(word in str(value).lower() for value in values for word in words)

    return fits


def _has(*parts: str) -> Predicate:
    def fits(config: Mapping[str, Any], names: set[str]) -> bool:
        return any(part in name for name in names for part in parts)

    return fits


def _is_dflash2(config: Mapping[str, Any], names: set[str]) -> bool:
    options = {**config, **(config.get("dflash_config") or {})}
    is_named = _mentions("dflash2")(config, names)
    return is_named or "selector_rank" in options or "conv_kernel_size" in options


IN_ORDER = (
    "its tokens depend on those before them inside a block, so that a block's marginals are no "
    "tree; it takes a drafter that samples a block in order"
)
INDEPENDENT = (
    "its heads are independent of each other; it takes a drafter that ranks a tree of products of "
    "their marginals"
)
REFUSED: tuple[tuple[str, Predicate, str], ...] = (
    ("DFlash2", _is_dflash2, IN_ORDER),
    ("Domino", _mentions("domino"), IN_ORDER),
    ("DSpark", _mentions("dspark"), IN_ORDER),
    ("P-EAGLE", _mentions("peagle"), "it drafts a block in parallel from masked states; it takes a "
     "drafter of blocks, as DFlash has"),
    ("Medusa", _mentions("medusa"), INDEPENDENT),
    ("Hydra", _mentions("hydra"), "its heads read the tokens before them; it takes a drafter that "
     "runs them in order"),
    ("an MLP speculator", _mentions("mlp_speculator", "mlpspeculator"), "its layers read the last "
     "state and one token each; it takes a drafter that runs them in order"),
    ("Medusa", _has("medusa_head"), INDEPENDENT),
)  # fmt: skip
"""Name, how to tell it, what it would take."""

EAGLE1 = (
    "an EAGLE-1 or EAGLE-2 head as published, a Llama layer on the target's last states; it takes "
    "a loader of that layout: train one with `sooner train draft`, or give an EAGLE-3 head"
)


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


def read_config(folder: Path) -> dict[str, Any]:
    """Returns a drafter's config.json.

    Raises:
        SoonerError: there is none, or it is no object.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoonerError(
            f"draft head '{folder}' has no readable config.json; give a folder that `sooner train "
            "draft` wrote, or a published drafter"
        ) from error
    if not isinstance(config, dict):
        raise SoonerError(f"'{folder / 'config.json'}' is no JSON object; give a published drafter")
    return config


def kind_of(folder: Path, config: Mapping[str, Any]) -> Kind:
    """Returns what a drafter is.

    Raises:
        UnsupportedError: one that no method runs; says what it would take.
    """
    names = tensor_names(folder)
    for name, fits, lacking in REFUSED:
        if fits(config, names):
            raise UnsupportedError(f"'{folder}' is {name}: {lacking}")
    kinds = known_kinds()
    for kind in kinds:
        if kind.fits(config, names):
            return kind
    if any(name.removeprefix("model.").startswith(("fc.", "layers.0.")) for name in names):
        raise UnsupportedError(f"'{folder}' is {EAGLE1}")
    known = ", ".join(kind.name for kind in kinds)
    raise UnsupportedError(
        f"'{folder / 'config.json'}' is of model_type {config.get('model_type')!r}, "
        f"no drafter that is known; known: {known}"
    )


def tensor_names(folder: Path) -> set[str]:
    """Returns names of a folder's tensors, without loading them where the format allows it."""
    from safetensors import SafetensorError, safe_open

    names: set[str] = set()
    for path in _files(folder, "*.safetensors"):
        try:
            with safe_open(str(path), framework="pt") as file:
                names |= set(file.keys())
        except (OSError, SafetensorError):
            continue  # the loader says what is wrong with it
    if not names and (path := folder / "pytorch_model.bin").is_file():
        import torch

        try:
            names = set(torch.load(path, map_location="meta", weights_only=True, mmap=True))
        except Exception:  # as above; torch raises whatever its unpickler does
            return names
    return names


def _files(folder: Path, pattern: str) -> Iterable[Path]:
    return sorted(folder.glob(pattern)) if folder.is_dir() else ()
