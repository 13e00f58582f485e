"""Input files, and records of them on disk, known by their content, models and settings."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .. import miniatures
from ..errors import SoonerError
from ..io import JsonLines, read_line, to_line
from ..plugins import plugins
from .settings import CaptionSettings

GGUF_SUFFIX = ".gguf"
GGUF_MAGIC = b"GGUF"

VIDEOS = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts"),
    *(".wmv", ".flv", ".3gp", ".ogv", ".gif"),
)

"""File names that a folder is searched for; a file named by itself may be called anything."""


def find(paths: Sequence[Path | str]) -> list[Path]:
    """Returns the videos meant by `paths`: files as they are, folders searched to the bottom.

    Folders are listed in natural order (`clip2` before `clip10`); a file named twice is kept once.

    Raises:
        SoonerError: a path that does not exist, or a folder without videos.
    """
    result: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            from ..documents.inputs import natural  # for folders alone

            names = (name for name in path.rglob("*") if name.suffix.lower() in VIDEOS)
            videos = sorted(filter(Path.is_file, names), key=natural)
            if not videos:
                raise SoonerError(f"folder '{path}' has no videos; known are {', '.join(VIDEOS)}")
            result.update(dict.fromkeys(videos))
            continue
        if not path.exists():
            raise SoonerError(f"file '{path}' does not exist; check the path")
        kind = mimetypes.guess_type(path.name)[0] or ""
        if path.suffix.lower() not in VIDEOS and kind.startswith(("image/", "application/pdf")):
            raise SoonerError(
                f"'{path}' is a document, no video; parse it: sooner parse {path} -o out"
            )
        result[path] = None
    return list(result)


RECORDS = "0.1.0"
"""Part of every record's hash, raised when the same settings give another result. It is not the
package's version: an upgrade redoes nothing that was finished."""


def model_names(
    model: str | None, draft: str | None, miniature: str = "video"
) -> tuple[str, str | None]:
    """Returns names of target and draft; without a model, those of the bundled pair."""
    if model is not None:
        return model, draft
    small = miniatures.find(miniature)
    if draft is None and small.draft is not None:
        draft = str(small.draft)
    return str(small.target), draft


def settings_hash(
    settings: CaptionSettings, model: str, draft: str | None = None, dtype: str = "auto"
) -> str:
    """Hash of all that decides a record besides the video; `dtype` as it was asked for."""
    names = [fingerprint(name) if name else "" for name in (model, draft)]
    return settings.digest(*names, dtype, RECORDS)


def fingerprint(model: str) -> str:
    """Returns fingerprint of a model folder's files, or of a GGUF file; a hub id is its own."""
    source = checkpoint(model)
    folder = Path(source.folder)
    if not folder.is_dir():
        return model
    digest = hashlib.sha256()
    files = sorted(folder.iterdir()) if source.gguf_file is None else [folder / source.gguf_file]
    for path in files:
        if path.is_file():
            stat = path.stat()
            digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def sha256(path: Path | str) -> str:
    """Returns the hash of a file's content.

    Raises:
        SoonerError: the file can't be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SoonerError(f"'{path}' can't be read: {error.strerror}") from error


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


Key = tuple[str, str]


class Records:
    """A `.jsonl` file to which finished records are added.

    It is read and written as `JsonLines`.

    Args:
        path: the file; its folder must exist.
        overwrite: redo what is done; a new record then replaces the old one of the same key.

    Raises:
        SoonerError: the file can't be written.
    """

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self.path = path
        self.overwrite = overwrite
        try:
            self._file = JsonLines(path)
        except OSError as error:
            raise SoonerError(
                f"output '{path}' can't be written: {error.strerror}; choose another with -o"
            ) from error
        pairs = ((_key(record), record) for record in self._file.records)
        self._done = {key: record for key, record in pairs if key is not None}

    def done(self, input_hash: str, settings_hash: str) -> dict[str, Any] | None:
        """Returns the record of an earlier run with the same content and settings."""
        return None if self.overwrite else self._done.get((input_hash, settings_hash))

    def add(self, record: dict[str, Any]) -> None:
        """Put a record on disk."""
        key = _key(record)
        if self.overwrite and key in self._done:
            lines = self.path.read_bytes().split(b"\n")
            rest = [line for line in lines if line and _key(read_line(line) or {}) != key]
            self._file.rewrite([*(line + b"\n" for line in rest), to_line(record)])
        else:
            self._file.add(record)
        if key is not None:
            self._done[key] = record


def _key(record: dict[str, Any]) -> Key | None:
    hashes = record.get("input_hash"), record.get("settings_hash")
    return hashes if all(isinstance(part, str) for part in hashes) else None  # type: ignore[return-value]
