"""What a search has found so far, on disk, so that an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import SoonerError
from ...io import replacing
from .score import Survey, Tally


class Sidecar:
    """A folder beside the pattern file that has one small file for each finished layer and pass.

    Args:
        path: the folder; `None` keeps nothing.
        key: what the search is of: model, samples, settings. What another search left is removed.

    Raises:
        SoonerError: the folder can't be written.
    """

    def __init__(self, path: Path | None, key: Mapping[str, Any]) -> None:
        self.path = path
        if path is None:
            return
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
        mark = path / "search.txt"
        try:
            if path.is_dir() and (not mark.is_file() or mark.read_text() != digest):
                shutil.rmtree(path)
            path.mkdir(parents=True, exist_ok=True)
            mark.write_text(digest)
        except OSError as error:
            raise SoonerError(f"'{path}' can't be written: {error.strerror}") from error

    @property
    def count(self) -> int:
        """Files that are there."""
        return 0 if self.path is None else len(list(self.path.glob("*.pt")))

    def get(self, name: str) -> list[Survey] | None:
        """Returns what was kept by a name; `None` if nothing was."""
        path = None if self.path is None else self.path / f"{name}.pt"
        if path is None or not path.is_file():
            return None
        try:
            entries = torch.load(path, weights_only=True)
        except (OSError, RuntimeError, EOFError):  # written halfway when the power went
            return None
        return [
            Survey({name: Tally(*tally) for name, tally in regions.items()}, *figures)
            for regions, *figures in entries
        ]

    def keep(self, name: str, surveys: Sequence[Survey]) -> None:
        """Writes what was measured of a layer."""
        if self.path is None:
            return
        entries = [
            (
                {name: tuple(vars(tally).values()) for name, tally in survey.regions.items()},
                survey.norm, survey.tokens, survey.pairs,
            )
            for survey in surveys
        ]  # fmt: skip
        with replacing(self.path / f"{name}.pt") as part:
            torch.save(entries, part)

    def remove(self) -> None:
        """The search is done."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
