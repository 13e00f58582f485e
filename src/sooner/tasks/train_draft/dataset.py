"""Recorded generations: shards on disk, samples, and batches of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

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
            lengths = self._file.get_tensor("lengths").tolist()
            self.prompts: list[int] = self._file.get_tensor("prompts").tolist()
            embeds = self._file.get_tensor("embed_counts").tolist()
        except (OSError, SafetensorError) as error:
            raise SoonerError(
                f"shard '{path}' can't be read ({reason_of(error)}); record the data anew"
            ) from error
        self.ends = [0, *accumulate(lengths)]
        self.embed_ends = [0, *accumulate(embeds)]

    def __getitem__(self, index: int) -> TrainingSample:
        start, end = self.ends[index], self.ends[index + 1]
        return TrainingSample(
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

    def append(self, samples: Sequence[TrainingSample], batches: int) -> None:
        """Write a shard of the samples of so many batches; a resumed run goes on behind them."""
        if samples:
            name = f"shard-{len(self.index['shards']):05d}.safetensors"
            with replacing(self.folder / name) as part:
                save_file(pack(samples), part)
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


def read_index(folder: Path) -> dict[str, Any] | None:
    """Returns the index of a recording, or `None` where there is none.

    Raises:
        SoonerError: it can't be read, or is of another version.
    """
    path = folder / INDEX
    if not path.is_file():
        return None
    try:
        index = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SoonerError(
            f"'{path}' can't be read ({reason_of(error)}); record the data anew"
        ) from error
    if index.get("format") != FORMAT:
        raise SoonerError(
            f"'{path}' is of format {index.get('format')!r}, this version reads {FORMAT}; record "
            "the data anew"
        )
    return index


def pack(samples: Sequence[TrainingSample]) -> dict[str, Tensor]:
    """Returns the tensors of a shard."""
    return {
        "tokens": torch.cat([sample.tokens for sample in samples]).int(),
        "stored": torch.cat([sample.stored for sample in samples]).to(torch.uint8),
        "states": torch.cat([sample.states for sample in samples]).half(),
        "embeds": torch.cat([sample.embeds for sample in samples]).half(),
        "lengths": torch.tensor([len(sample.tokens) for sample in samples]),
        "prompts": torch.tensor([sample.prompt for sample in samples]),
        "embed_counts": torch.tensor([len(sample.embeds) for sample in samples]),
    }


@dataclass(frozen=True)
class PaddedBatch:
    """Samples side by side, padded on the right. Entry `i` is state `f_i` with the token behind it.

    Attributes:
        states: `f_i`, `[rows, entries, hidden]`.
        embeds: embedding of token `i + 1`, `[rows, entries, hidden]`.
        places: entries that are learnt or measured, `[rows, span]`.
        valid: which of those are real, `[rows, span]` bool.
        wanted: `f_{i+1}` of each, `[rows, span, hidden]`.
        following: token `i + 2` of each, `[rows, span]`.
        lengths: entries of each row, `[rows]`.
    """

    states: Tensor
    embeds: Tensor
    places: Tensor
    valid: Tensor
    targets: Tensor
    following: Tensor
    lengths: Tensor


def collate(
    samples: Sequence[TrainingSample],
    embed: Callable[[Tensor], Tensor],
    device: torch.device,
    whole: bool,
) -> PaddedBatch:
    """Put samples side by side.

    Args:
        samples: at least one.
        embed: the target's embedding.
        device: of the batch.
        whole: the span begins with the prompt rather than with the answer.
    """
    padded = partial(pad_sequence, batch_first=True)
    tokens = padded([sample.tokens for sample in samples]).to(device)  # [rows, entries + 2]
    states = padded([sample.states.float() for sample in samples]).to(device)  # one less
    stored = padded([sample.stored for sample in samples]).to(device)
    with torch.no_grad():
        embeds = embed(tokens).float()
    embeds[stored] = torch.cat([sample.embeds for sample in samples]).to(device, embeds.dtype)
    first = [0 if whole else sample.prompt - 1 for sample in samples]
    counts = [sample.entries - start for sample, start in zip(samples, first, strict=True)]
    line = torch.arange(max(counts), device=device)
    valid = line < torch.tensor(counts, device=device)[:, None]
    places = torch.where(valid, torch.tensor(first, device=device)[:, None] + line, 0)
    index = (places + 1)[..., None].expand(-1, -1, states.shape[2])
    return PaddedBatch(
        states=states[:, :-1],
        embeds=embeds[:, 1:-1],
        places=places,
        valid=valid,
        targets=states.gather(1, index),
        following=tokens.gather(1, places + 2),
        lengths=torch.tensor([sample.entries for sample in samples], device=device),
    )
