"""Tells whether a record is of this content, these models and these settings; no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .. import __version__, miniatures
from ..errors import SoonerError
from .settings import CaptionSettings


def model_names(
    model: str | None, draft: str | None, miniature: str = "video"
) -> tuple[str, str | None]:
    """Names of target and draft; without a model, those of the bundled pair."""
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
    return settings.digest(*names, dtype, __version__)


def fingerprint(model: str) -> str:
    """What tells one state of a model folder from another; hub ids stand for themselves."""
    folder = Path(model)
    if not folder.is_dir():
        return model
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            stat = path.stat()
            digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def sha256(path: Path | str) -> str:
    """Hash of a file's content, read in pieces.

    Raises:
        SoonerError: the file can't be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise SoonerError(f"'{path}' can't be read: {error.strerror}") from error
    return digest.hexdigest()
