"""Input files, and records of them on disk, known by their content, models and settings."""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import miniatures
from ..checkpoints import checkpoint
from ..errors import SoonerError, reason_of
from ..io import read_line, replacing, sync, to_line

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


def read_prompts(path: Path) -> list[tuple[int, str]]:
    """Returns the lines of a text file that are not blank, with their numbers.

    Raises:
        SoonerError: the file can't be read, or holds no text.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error)
        raise SoonerError(f"prompt file '{path}' can't be read as text: {reason}") from error
    questions = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not questions:
        raise SoonerError(f"'{path}' has no question or prompt; write one a line")
    return questions


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
    settings: Any, model: str, helper: str | None = None, dtype: str = "auto", *options: Any
) -> str:
    """Returns a hash of all that decides a record besides its input.

    Args:
        settings: of a task, with a `digest`.
        helper: the draft of `model`, or its tokenizer.
        dtype, options: as requested, such as a layout.
    """
    names = [fingerprint(name) if name else "" for name in (model, helper)]
    return settings.digest(*names, dtype, *filter(None, options), RECORDS)


def fingerprint(model: str) -> str:
    """Returns fingerprint of a model folder's files, or of a single file; a hub id is its own."""
    source = checkpoint(model)
    folder = Path(source.folder)
    if not folder.exists():
        return model
    digest = hashlib.sha256()
    files = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    if source.gguf_file is not None:
        files = [folder / source.gguf_file]
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


class Records:
    """A `.jsonl` file to which finished records are added, safe against a crash at any moment.

    A record is on disk before `add` returns. A line that a crash cut off is ignored when reading,
    and the next one still starts on a line of its own. One process writes at a time.

    Args:
        path: the file; its folder must exist.
        overwrite: redo what is done; a new record then replaces the old one of the same key.

    Raises:
        SoonerError: the file can't be written.
    """

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self.path, self.overwrite = path, overwrite
        try:
            path.open("ab").close()
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise SoonerError(
                f"output '{path}' can't be written: {error.strerror}; choose another with -o"
            ) from error
        self._is_torn = bool(lines[-1])  # the last line has no end
        records = [record for line in lines if (record := read_line(line)) is not None]
        self._done = {key: record for record in records if (key := _key(record)) is not None}

    def done(self, input_hash: str, settings_hash: str) -> dict[str, Any] | None:
        """Returns the record of an earlier run with the same content and settings."""
        return None if self.overwrite else self._done.get((input_hash, settings_hash))

    def add(self, record: dict[str, Any]) -> None:
        """Put a record on disk; if that fails, nothing is left of it.

        Raises:
            OSError: the file can't be written.
        """
        key = _key(record)
        if self.overwrite and key in self._done:
            lines = self.path.read_bytes().split(b"\n")
            rest = [line for line in lines if line and _key(read_line(line) or {}) != key]
            with replacing(self.path) as part, open(part, "wb") as file:
                file.writelines([*(line + b"\n" for line in rest), to_line(record)])
                sync(file)
        else:
            size = self.path.stat().st_size if self.path.exists() else 0
            try:
                with open(self.path, "ab") as file:
                    file.write(b"\n" * self._is_torn + to_line(record))
                    sync(file)
            except OSError:
                os.truncate(self.path, size)
                raise
        self._is_torn = False
        if key is not None:
            self._done[key] = record


def _key(record: dict[str, Any]) -> tuple[str, str] | None:
    hashes = record.get("input_hash"), record.get("settings_hash")
    return hashes if all(isinstance(part, str) for part in hashes) else None  # type: ignore[return-value]
