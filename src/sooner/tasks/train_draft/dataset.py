"""Recorded generations: shards on disk, samples, and batches of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...errors import SoonerError, reason_of
from ...io import replacing, write_json
from ..identity import sha256

INDEX, FORMAT = "index.json", 1


@dataclass(frozen=True)
class TrainingSample:
    """One prompt that has its answer.

    Attributes:
        tokens: ids of prompt and answer, `[length]`, int64; placeholders are 0.
        prompt: tokens of the prompt.
        states: the target's states of every token but the last, `[length - 1, hidden]`, fp16.
        stored: tokens whose embedding can't be looked up by their id, `[length]` bool.
        embeds: the embeddings of those, `[stored, hidden]`, fp16.
    """

    tokens: Tensor
    prompt: int
    states: Tensor
    stored: Tensor
    embeds: Tensor

    @property
    def entries(self) -> int:
        """Pairs of a state and the next token whose successor is known too."""
        return len(self.tokens) - 2


class Shard:
    """A file that holds samples, laid end to end: `tokens`, `stored`, `states`, `embeds`, and where
    each sample ends. Samples are read from it one by one, and nothing else.

    Args:
        path: the safetensors file.

    Raises:
        SoonerError: the file can't be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = safe_open(str(path), framework="pt")
            numbers = ("lengths", "embed_counts", "prompts")
            lengths, embeds, prompts = (self._file.get_tensor(name).tolist() for name in numbers)
        except (OSError, SafetensorError) as error:
            raise SoonerError(
                f"shard '{path}' can't be read ({reason_of(error)}); record the data anew"
            ) from error
        self.prompts: list[int] = prompts
        self.ends, self.embed_ends = [0, *accumulate(lengths)], [0, *accumulate(embeds)]

    def __getitem__(self, index: int) -> TrainingSample:
        def cut(name: str, start: int, end: int) -> Tensor:
            return self._file.get_slice(name)[start:end]

        start, end = self.ends[index : index + 2]
        return TrainingSample(
            tokens=cut("tokens", start, end).long(),
            prompt=self.prompts[index],
            states=cut("states", start - index, end - index - 1),  # one less than tokens
            stored=cut("stored", start, end).bool(),
            embeds=cut("embeds", *self.embed_ends[index : index + 2]),
        )


class DataSet:
    """A folder of shards and their index; samples stay on the disk until they are asked for.

    Args:
        folder: where `record` writes.
        index: content of its `index.json`.
    """

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        self.folder = folder
        self.index = index
        self._shards: dict[str, Shard] = {}

    @staticmethod
    def open(folder: Path | str) -> DataSet:
        """Returns the recording in `folder`.

        Raises:
            SoonerError: there is none, it can't be read, or it is of another version.
        """
        home = Path(folder)
        path = home / INDEX
        if not path.is_file():
            raise SoonerError(
                f"folder '{home}' has no recording ({INDEX}); make one with `sooner train draft "
                "--data ...` or sooner.tasks.train_draft.record"
            )
        try:
            index = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise SoonerError(
                f"'{path}' can't be read ({reason_of(error)}); record the data anew"
            ) from error
        if index.get("format") != FORMAT:
            raise SoonerError(
                f"'{path}' is of format {index.get('format')!r}, this version reads {FORMAT}; "
                "record the data anew"
            )
        return DataSet(home, index)

    def append(self, samples: Sequence[TrainingSample], batches: int) -> None:
        """Write a shard of the samples of so many batches; a resumed run goes on behind them."""
        if samples:
            name = f"shard-{len(self.index['shards']):05d}.safetensors"
            with replacing(self.folder / name) as part:
                save_file(
                    {
                        "tokens": torch.cat([sample.tokens for sample in samples]).int(),
                        "stored": torch.cat([sample.stored for sample in samples]).to(torch.uint8),
                        "states": torch.cat([sample.states for sample in samples]).half(),
                        "embeds": torch.cat([sample.embeds for sample in samples]).half(),
                        "lengths": torch.tensor([len(sample.tokens) for sample in samples]),
                        "prompts": torch.tensor([sample.prompt for sample in samples]),
                        "embed_counts": torch.tensor([len(sample.embeds) for sample in samples]),
                    },
                    part,
                )
                entry = {"file": name, "samples": len(samples), "sha256": sha256(part)}
            self.index["shards"].append(entry)
            self.index["samples"] += len(samples)
        self.index["batches"] += batches
        self.save_index()

    def save_index(self) -> None:
        """Write the index.

        Raises:
            SoonerError: the folder can't be written.
        """
        try:
            write_json(self.index, self.folder / INDEX)
        except OSError as error:
            reason = reason_of(error)
            raise SoonerError(f"folder '{self.folder}' can't be written: {reason}") from error

    def __len__(self) -> int:
        return int(self.index["samples"])

    def __getitem__(self, index: int) -> TrainingSample:
        if not 0 <= index < len(self):
            raise IndexError(index)
        for entry in self.index["shards"]:
            if index < entry["samples"]:
                break
            index -= entry["samples"]
        name = entry["file"]
        if name not in self._shards:
            self._shards[name] = Shard(self.folder / name)
        return self._shards[name][index]

    @property
    def digest(self) -> str:
        """Returns the hash of all samples, as their shards' hashes tell."""
        hashes = "".join(shard["sha256"] for shard in self.index["shards"])
        return hashlib.sha256(hashes.encode()).hexdigest()


Place = tuple[DataSet, int]
"""A recording, and the number of a sample in it."""
