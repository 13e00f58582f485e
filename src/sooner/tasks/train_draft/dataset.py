"""Recorded generations: what a target read, said, and thought while saying it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import SoonerError

INDEX, FORMAT = "index.json", 1


@dataclass(frozen=True)
class Sample:
    """One prompt and its answer.

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
    """One file of samples, laid end to end: `tokens`, `stored`, `states`, `embeds`, and where each
    sample ends. Samples are read from it one by one, and nothing else.

    Args:
        path: the safetensors file.

    Raises:
        SoonerError: the file can't be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = safe_open(str(path), framework="pt")
            lengths = self._file.get_tensor("lengths").tolist()
            self.prompts: list[int] = self._file.get_tensor("prompts").tolist()
            embeds = self._file.get_tensor("embed_counts").tolist()
        except (OSError, SafetensorError) as error:
            raise SoonerError(
                f"shard '{path}' can't be read ({error}); record the data anew"
            ) from error
        self.ends = [0, *accumulate(lengths)]
        self.embed_ends = [0, *accumulate(embeds)]

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> Sample:
        start, end = self.ends[index], self.ends[index + 1]
        return Sample(
            tokens=self._cut("tokens", start, end).long(),
            prompt=self.prompts[index],
            # A sample has one state less than tokens.
            states=self._cut("states", start - index, end - index - 1),
            stored=self._cut("stored", start, end).bool(),
            embeds=self._cut("embeds", self.embed_ends[index], self.embed_ends[index + 1]),
        )

    def _cut(self, name: str, start: int, end: int) -> Tensor:
        return self._file.get_slice(name)[start:end]


class DataSet:
    """A folder of shards and their index; samples stay on the disk until they are asked for.

    Args:
        folder: where `record` wrote.
        index: content of its `index.json`.
    """

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        self.folder = folder
        self.index = index
        self._shards: dict[int, Shard] = {}

    @staticmethod
    def open(folder: Path | str) -> DataSet:
        """The recording in `folder`.

        Raises:
            SoonerError: there is none.
        """
        home = Path(folder)
        index = read_index(home)
        if index is None:
            raise SoonerError(
                f"folder '{home}' has no recording ({INDEX}); make one with `sooner train draft "
                "--data ...` or sooner.tasks.train_draft.record"
            )
        return DataSet(home, index)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(shard["samples"] for shard in self.index["shards"])]

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        number = next(n for n, end in enumerate(self._starts[1:]) if index < end)
        return self._shard(number)[index - self._starts[number]]

    def _shard(self, number: int) -> Shard:
        if number not in self._shards:
            self._shards[number] = Shard(self.folder / self.index["shards"][number]["file"])
        return self._shards[number]

    @property
    def digest(self) -> str:
        """Hash of all samples, as their shards' hashes tell."""
        hashes = "".join(shard["sha256"] for shard in self.index["shards"])
        return hashlib.sha256(hashes.encode()).hexdigest()


def read_index(folder: Path) -> dict[str, Any] | None:
    """The index of a recording, or `None` where there is none.

    Raises:
        SoonerError: it can't be read, or is of another version.
    """
    path = folder / INDEX
    if not path.is_file():
        return None
    try:
        index = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SoonerError(f"'{path}' can't be read ({error}); record the data anew") from error
    if index.get("format") != FORMAT:
        raise SoonerError(
            f"'{path}' is of format {index.get('format')!r}, this version reads {FORMAT}; record "
            "the data anew"
        )
    return index


def empty_index(target: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The index of a recording that has not begun.

    Args:
        target: fingerprint of the model that is recorded.
        options: how it generates.
    """
    return {
        "format": FORMAT,
        "target": target,
        "options": options,
        "is_complete": False,
        "batches": 0,
        "samples": 0,
        "shards": [],
    }


def pack(samples: list[Sample]) -> dict[str, Tensor]:
    """The tensors of a shard."""
    return {
        "tokens": torch.cat([one.tokens for one in samples]).int(),
        "stored": torch.cat([one.stored for one in samples]).to(torch.uint8),
        "states": torch.cat([one.states for one in samples]).half(),
        "embeds": torch.cat([one.embeds for one in samples]).half(),
        "lengths": torch.tensor([len(one.tokens) for one in samples]),
        "prompts": torch.tensor([one.prompt for one in samples]),
        "embed_counts": torch.tensor([len(one.embeds) for one in samples]),
    }
