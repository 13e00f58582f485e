"""Files that are whole or not there: written beside their place, then put into it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import SoonerError


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A path beside `path` to write to; on leaving, what was written replaces `path` at once.

    The name is of this process alone, so two writers never share it; the last one wins. If the
    block raises, `path` stays as it was and nothing is left behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(text: str, path: Path | str) -> None:
    """Write a text whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(content: Any, path: Path | str) -> None:
    """Write JSON whole or not at all; an object that JSON does not know leaves no file behind."""
    write_text(json.dumps(content, indent=1) + "\n", path)


def check_writable(path: Path, option: str = "--json") -> None:
    """Refuse an output file that can't be written before minutes are spent on it.

    Raises:
        SoonerError: it is a folder, or its folder takes no files; names `option`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise SoonerError(
            f"can't write '{path}': {error.strerror}; choose another {option}"
        ) from error
    if path.is_dir():
        raise SoonerError(f"can't write '{path}': it is a folder; name a file in it")
