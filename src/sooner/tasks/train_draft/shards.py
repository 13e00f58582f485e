"""Writes samples to shards: each file whole or not at all, and the index last."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from ...errors import SoonerError
from ..identity import sha256
from .dataset import INDEX, Sample, pack


class ShardWriter:
    """Adds to a recording. What is written ends with a batch, so that a resumed run goes on there.

    Args:
        folder: of the recording.
        index: what is in it already; kept up to date.
        shard_samples: samples after which a shard is written.

    Raises:
        SoonerError: the folder can't be written.
    """

    def __init__(self, folder: Path, index: dict[str, Any], shard_samples: int) -> None:
        self.folder, self.index, self.shard_samples = folder, index, shard_samples
        self._samples: list[Sample] = []
        self._batches = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SoonerError(f"folder '{folder}' can't be written: {error.strerror}") from error

    def add(self, batch: list[Sample]) -> None:
        """Take the samples of one batch."""
        self._samples += batch
        self._batches += 1
        if len(self._samples) >= self.shard_samples:
            self.flush()

    def finish(self) -> None:
        """Write what is left, and that this is all."""
        self.flush()
        self.index["is_complete"] = True
        self._write_index()

    def flush(self) -> None:
        """Write what was taken since the last shard."""
        if not self._batches:
            return
        if self._samples:
            self._write_shard()
        self.index["batches"] += self._batches
        self._samples, self._batches = [], 0
        self._write_index()

    def _write_shard(self) -> None:
        name = f"shard-{len(self.index['shards']):05d}.safetensors"
        part = self.folder / f".{name}.part"
        save_file(pack(self._samples), part)
        entry = {"file": name, "samples": len(self._samples), "sha256": sha256(part)}
        os.replace(part, self.folder / name)
        self.index["shards"].append(entry)
        self.index["samples"] += len(self._samples)

    def _write_index(self) -> None:
        part = self.folder / f".{INDEX}.part"
        part.write_text(json.dumps(self.index, indent=1) + "\n")
        os.replace(part, self.folder / INDEX)
