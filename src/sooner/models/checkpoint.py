"""Reads published checkpoints, tensor by tensor, by the names that stand in their files."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import SoonerError, UnsupportedError, reason_of
from .base import complain

WEIGHTS, BINARY = "model.safetensors", "pytorch_model.bin"
FETCHED = ("*.json", "*.safetensors", "*.txt", "tokenizer.model", "*.jinja")
NESTED = ("state_dict", "model")
"""Keys under which trainers keep the tensors of a file that holds more."""


def fetched(name: str) -> Path:
    """Returns the folder of a checkpoint; one on the hub comes without its Python files."""
    if Path(name).is_dir():
        return Path(name)
    return Path(snapshot_download(name, allow_patterns=list(FETCHED)))


def tensor_files(folder: Path) -> dict[str, Path]:
    """Returns the file of each tensor of a folder, by its index where there is one.

    Raises:
        SoonerError: a file can't be read, or is not there.
    """
    index, binary = folder / f"{WEIGHTS}.index.json", folder / BINARY
    if index.is_file():
        with _readable(index):
            mapping: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        gone = sorted(name for name in {*mapping.values()} if not (folder / name).is_file())
        complain(folder, "lacks", gone, "give the whole repository")
        return {name: folder / path for name, path in mapping.items()}
    files: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")) or [binary] * binary.is_file():
        with opened(path, "meta") as (names, _):
            files |= dict.fromkeys(names, path)
    return files


def read_state(folder: Path) -> dict[str, Tensor]:
    """Returns the tensors of a folder, on the CPU, as `read_tensors` does of a file."""
    files = dict.fromkeys(tensor_files(folder).values())
    return {name: tensor for file in files for name, tensor in read_tensors(file).items()}


def read_object(file: Path) -> dict[str, Any] | None:
    """Returns the JSON object in a file; `None` if there is no such file.

    Raises:
        SoonerError: it holds something else.
    """
    if not file.is_file():
        return None
    try:
        data = json.loads(file.read_text())
    except ValueError as error:
        raise SoonerError(f"'{file}' is not JSON ({error}); fetch it again") from error
    if not isinstance(data, dict):
        raise SoonerError(f"'{file}' holds no object; fetch it again")
    return data


def read_config(folder: Path) -> dict[str, Any]:
    """Returns a folder's `config.json` without nulls, empty where there is none."""
    config = read_object(folder / "config.json") or {}
    return {name: value for name, value in config.items() if value is not None}


def require_built(place: Path, config: Mapping[str, Any], built: dict[str, tuple]) -> None:
    """Refuse a config of which a field has another value than those that are built in, the first
    of which is meant where it has none.

    Raises:
        UnsupportedError: names the field, its value and those.
    """
    for name, values in built.items():
        if (value := config.get(name, values[0])) not in values:
            known = " or ".join(f"'{known}'" for known in values)
            raise UnsupportedError(
                f"'{place}' has {name} '{value}', which is not built in; only {known} is"
            )


def count_parts(names: Iterable[str], prefix: str) -> int:
    """Returns how many numbered parts, counted from 0, a checkpoint has under a name."""
    numbers = (re.match(rf"{re.escape(prefix)}(\d+)\.", name) for name in names)
    return 1 + max((int(number[1]) for number in numbers if number), default=-1)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file, on the CPU.

    Raises:
        SoonerError: it can't be read, or holds more than tensors.
    """
    with opened(path) as (names, tensor):
        return {name: tensor(name) for name in names}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except pickle.UnpicklingError as error:
        raise SoonerError(
            f"'{path}' holds more than tensors, which loading could run; save its state_dict as "
            "safetensors and give that"
        ) from error
    except (OSError, ValueError, KeyError, SafetensorError, RuntimeError, EOFError) as error:
        raise SoonerError(f"'{path}' can't be read as weights: {reason_of(error)}") from error


@contextmanager
def opened(
    path: Path, device: str = "cpu"
) -> Iterator[tuple[Iterable[str], Callable[[str], Tensor]]]:
    """Opens a file of weights: the names of its tensors, and what reads one of them."""
    with _readable(path):
        if path.suffix == ".safetensors":
            with safe_open(str(path), framework="pt") as file:
                yield file.keys(), file.get_tensor
        else:
            state: Any = torch.load(path, map_location=device, weights_only=True)
            state = next((state[key] for key in NESTED if isinstance(state.get(key), dict)), state)
            yield state.keys(), state.__getitem__
