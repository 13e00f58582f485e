"""Where a model's checkpoint is: a folder, a hub id, a GGUF file or an installed distribution; no
torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .errors import SoonerError
from .plugins import plugins

GGUF_SUFFIX = ".gguf"
GGUF_MAGIC = b"GGUF"

HUB_SECONDS = 5.0
"""What the model hub may take to answer at all."""


class Checkpoint(NamedTuple):
    """What `from_pretrained` takes to find a model.

    Attributes:
        folder: a folder or hub id.
        gguf_file: the name of the GGUF file in it; `None` where it is a checkpoint of transformers.
    """

    folder: str
    gguf_file: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Returns keyword arguments of `from_pretrained` of a config, tokenizer or model."""
        return {} if self.gguf_file is None else {"gguf_file": self.gguf_file}


def checkpoint(name: str) -> Checkpoint:
    """Find a model by what a user calls it.

    Args:
        name: a hub id; a folder; a `.gguf` file, or a folder with one such file and no
            `config.json`; or the name of an installed model.

    Raises:
        SoonerError: a folder of several GGUF files, a file that is no GGUF or does not exist, or
            the package `gguf` is missing.
    """
    path = Path(name)
    if path.is_dir():
        if (path / "config.json").is_file():
            return Checkpoint(name)
        files = sorted(path.glob(f"*{GGUF_SUFFIX}"))
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise SoonerError(f"model folder '{name}' has several GGUF files ({names}); name one")
        return _gguf(files[0]) if files else Checkpoint(name)
    if path.suffix.lower() == GGUF_SUFFIX:
        if not path.is_file():
            raise SoonerError(f"model file '{name}' does not exist; check the path")
        return _gguf(path)
    for models in plugins("sooner.checkpoints"):
        if name in models:
            return Checkpoint(str(models[name]()))
    return Checkpoint(name)


def installed() -> list[str]:
    """Returns the names of models whose weights an installed distribution holds."""
    return [
        name
        for models in plugins("sooner.checkpoints")
        for name, make in models.items()
        if getattr(make, "is_installed", True)
    ]


def _gguf(path: Path) -> Checkpoint:
    """Returns the checkpoint of a GGUF file that begins as one."""
    if find_spec("gguf") is None:
        raise SoonerError(
            f"'{path}' is a GGUF file, which needs the package gguf: pip install 'sooner[gguf]'"
        )
    with path.open("rb") as file:
        magic = file.read(len(GGUF_MAGIC))
    if magic != GGUF_MAGIC:
        raise SoonerError(f"'{path}' is no GGUF file: it begins with {magic!r}, not {GGUF_MAGIC!r}")
    return Checkpoint(str(path.parent), path.name)


def hub_problem() -> str | None:
    """Returns why the model hub can't be reached, in words, sooner than its client, which tries
    for a minute; `None` if it answers, or is not to be called."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return None
    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
    except Exception as error:  # of whatever client this version has
        return (
            f"the model hub can't be reached ({type(error).__name__}: {constants.ENDPOINT}); check "
            "the name and your connection, or give a folder"
        )
    return None
