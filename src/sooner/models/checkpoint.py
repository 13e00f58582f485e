"""Reads published checkpoints, tensor by tensor, by the names that stand in their files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import SoonerError, reason_of
from .base import complain

WEIGHTS, BINARY = "model.safetensors", "pytorch_model.bin"
NESTED = ("state_dict", "model")
"""Keys under which trainers keep the tensors of a file that holds more."""


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
