"""Records what a frozen target says to prompts, and its states while it does: to a user's files, or
to a miniature's world."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ... import miniatures
from ...checks import check_keys
from ...engine.interface import Prompt
from ...engine.runner import ModelRunner
from ...errors import SoonerError, reason_of
from ...generation import generate
from ...io import replacing, write_json
from ...methods.context import to_device
from ...methods.target_layers import LayerStates, layer_states
from ...methods.target_print import differences, fingerprint
from ...models import Adapter, adapt
from ...models.base import Packing
from ...models.model_types import check_sees
from ...models.openvla.config import OpenVLAConfig
from ...models.openvla.processing import OpenVLAProcessor
from ...models.openvla.statistics import ActionStatistics
from ..clip import prepare
from ..identity import find, read_prompts, sha256
from ..loading import ModelPair
from ..prompting import GENERAL_PROMPT, bos_options, chat, on_device, written
from ..settings import CaptionSettings, short_hash
from .settings import PromptSource, Recipe

SHARD_SAMPLES = 512

KEYS = ("image", "prompt", "video")
"""Keys of a question about a file."""
LONGEST = 256
"""Tokens of an answer in words."""

OnBatch = Callable[[dict[str, Any]], None]
"""Told the recording's index after every batch; what is not written yet is not counted."""

INDEX, FORMAT = "index.json", 2
PARTS = ("tokens", "states", "stored", "embeds")
"""Tensors of a sample; a shard holds each as `NUMBER.NAME`, and `prompts [samples]`."""


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


class DataSet:
    """A folder of shards (safetensors) and their index; a sample is read when it is indexed.

    Args:
        folder: where `record` writes.
        index: content of its `index.json`.
    """

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        self.folder = folder
        self.index = index
        self._shards: dict[str, Any] = {}

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
            parts = {
                f"{number}.{part}": getattr(sample, part)
                for number, sample in enumerate(samples)
                for part in PARTS
            }
            prompts = torch.tensor([sample.prompt for sample in samples])
            with replacing(self.folder / name) as path:
                save_file({**parts, "prompts": prompts}, path)
                entry = {"file": name, "samples": len(samples), "sha256": sha256(path)}
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
        """Returns a sample.

        Raises:
            SoonerError: its shard can't be read.
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        for entry in self.index["shards"]:
            if index < entry["samples"]:
                break
            index -= entry["samples"]
        path = self.folder / entry["file"]
        try:
            if entry["file"] not in self._shards:
                self._shards[entry["file"]] = safe_open(str(path), framework="pt")
            shard = self._shards[entry["file"]]
            parts = {part: shard.get_tensor(f"{index}.{part}") for part in PARTS}
            return TrainingSample(**parts, prompt=int(shard.get_tensor("prompts")[index]))
        except (OSError, SafetensorError) as error:
            raise SoonerError(
                f"shard '{path}' can't be read ({reason_of(error)}); record the data anew"
            ) from error

    @property
    def digest(self) -> str:
        """Returns the hash of all samples, as their shards' hashes tell."""
        hashes = "".join(shard["sha256"] for shard in self.index["shards"])
        return hashlib.sha256(hashes.encode()).hexdigest()


def record(
    model: Any, batches: Iterable[Mapping[str, Any]], out: Path | str, max_new_tokens: int, *,
    layers: Sequence[int] = (), source: str = "", shard_samples: int = SHARD_SAMPLES,
    on_batch: OnBatch | None = None, **options: Any,
) -> DataSet:  # fmt: skip
    """Let a target answer prompts, and write what a draft head learns from.

    Answers are greedy unless `options` say otherwise: a head drafts for what its target says. Kept
    are, for each prompt, the token ids, the target's states in fp16, and those embeddings that no
    id stands for, such as the visual ones.

    An interrupted recording goes on when it is called again with the same batches in the same
    order: those that were written are passed over. A complete one is only opened.

    Args:
        model: a loaded HF model of one of the supported families.
        batches: processed inputs, each a batch as the model's `generate` takes it.
        out: the recording's folder.
        max_new_tokens: most tokens of an answer.
        layers: whose states are kept, numbered as by `methods.target_layers`; none is the output.
        source: names the prompts; a recording of another name is not continued.
        shard_samples: samples of a file, at least.
        on_batch: told the progress.
        options: anything else that `model.generate` takes.

    Raises:
        SoonerError: the folder holds a recording of another model or source or with other options,
            or can't be written; a model that is not supported.
    """
    target, home = adapt(model), Path(out)
    merged = {"max_new_tokens": max_new_tokens, "do_sample": False, **options}
    details = {**merged, "layers": tuple(layers)} if layers else merged
    data = _opened(home, target, source, {name: repr(details[name]) for name in sorted(details)})
    if data.index["is_complete"]:
        return data
    pending, batches_done = list[TrainingSample](), 0
    was_training = model.training
    model.eval()
    try:
        for inputs in islice(batches, data.index["batches"], None):
            pending += answer(target, to_device(inputs, target.device), merged, layers)
            batches_done += 1
            if len(pending) >= shard_samples:
                data.append(pending, batches_done)
                pending, batches_done = [], 0
            if on_batch is not None:
                on_batch(data.index)
        data.index["is_complete"] = True
    finally:
        data.append(pending, batches_done)
        model.train(was_training)
    return data


def _opened(home: Path, target: Adapter, source: str, options: dict[str, Any]) -> DataSet:
    """Returns the recording that is to be made or continued; one without answers is made anew."""
    data = DataSet.open(home) if (home / INDEX).is_file() else None
    if data is None or not data.index["batches"]:
        about = {"format": FORMAT, "target": fingerprint(target), "source": source}
        counts = {"is_complete": False, "batches": 0, "samples": 0, "shards": []}
        data = DataSet(home, {**about, "options": options, **counts})
        data.save_index()
        return data
    index = data.index
    if differences(index["target"], target):
        raise SoonerError(
            f"'{home}' holds a recording of another target ({index['target'].get('model_type')}); "
            "record into another folder"
        )
    if index.get("source", source) != source:  # which earlier versions did not write
        raise SoonerError(
            f"'{home}' holds answers to other prompts (--data, --samples, --prompt or --frames "
            f"differ); record into another folder, or train on them with --data {home}"
        )
    if index["options"] != options:
        raise SoonerError(
            f"'{home}' holds a recording with options {index['options']}, not {options}; record "
            "into another folder"
        )
    return data


@torch.inference_mode()
def answer(
    target: Adapter, inputs: dict[str, Any], options: dict[str, Any], layers: Sequence[int],
    dtype: torch.dtype = torch.float16,
) -> list[TrainingSample]:  # fmt: skip
    """Returns the samples of one batch, on the host; an answer of a single token has none.

    Args:
        options, layers: as of `record`.
        dtype: of states and embeddings.
    """
    tokens = generate(target.model, inputs, **options).tokens
    prompt = target.embed_prompt(inputs)
    ids = Packing.of(inputs)(inputs["input_ids"])
    known = ids.clamp(0, target.vocab_size - 1)  # a placeholder may lie behind the vocabulary
    stored = (target.embed_tokens(known) != prompt.embeds).any(-1)  # [rows, width]
    read, outputs = _states(target, prompt, tokens, layers)
    samples = []
    for row, made in enumerate(tokens):
        if len(made) < 2:
            continue
        length, more = prompt.lengths[row], len(made)
        apart = stored[row, :length]
        output = outputs[row, : more - 1].to(read.device)
        words = ids[row, :length].masked_fill(apart, 0).cpu()
        samples.append(
            TrainingSample(
                tokens=torch.cat([words, torch.tensor(made)]),
                prompt=length,
                states=_narrowed(torch.cat([read[row, :length], output]), dtype),
                stored=torch.cat([apart.cpu(), torch.zeros(more, dtype=torch.bool)]),
                embeds=_narrowed(prompt.embeds[row, :length][apart], dtype),
            )
        )
    return samples


def _narrowed(states: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns states on the host, none of them infinite: some are larger than fp16 goes."""
    limit = torch.finfo(dtype).max
    return states.cpu().float().clamp(-limit, limit).to(dtype)


def _states(
    target: Adapter, prompt: Prompt, outputs: list[list[int]], layers: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Returns states of prompts `[rows, width, hidden]` and answers `[rows, most, hidden]`."""
    records: list[Tensor] = []
    longest = max(len(answer) for answer in outputs)
    reads: Any = LayerStates(target, layers) if layers else target
    runner = ModelRunner(reads, prompt.width + longest)
    runner.prefill(prompt, on_states=lambda _prompt, _start, states: records.append(states))
    padded = [answer + [0] * (longest - len(answer)) for answer in outputs]
    tokens = torch.tensor(padded, device=target.device)
    parts = (records[0], runner.forward_chain(tokens).hidden)
    if not layers:
        return parts
    read, answered = (layer_states(part, len(layers)) for part in parts)
    return read, answered


@dataclass(frozen=True)
class FilePrompt:
    """A prompt, and the file that it is about.

    Attributes:
        path: of a video or an image; `None` is no file.
        is_image: which of them.
        prompt: `None` is the model's usual one.
    """

    path: Path | None
    is_image: bool = False
    prompt: str | None = None


def read_questions(source: Path | str) -> list[FilePrompt]:
    """Returns the questions of a JSONL file of `{"video" or "image": path, "prompt": text}`, whose
    paths are relative to it and may be missing, or of a folder of videos.

    Raises:
        SoonerError: nothing there; a line that is no question, by its number; a missing file.
    """
    root = Path(source)
    if root.suffix.lower() not in (".jsonl", ".json"):
        return [FilePrompt(path) for path in find([root])]
    lines = read_prompts(root)
    return [_question(line, f"'{root}' line {number}", root.parent) for number, line in lines]


def _question(line: str, where: str, home: Path) -> FilePrompt:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise SoonerError(f"{where} is no JSON: {error}") from error
    if not isinstance(data, dict) or {"video", "image"} <= data.keys():
        raise SoonerError(f"{where} needs 'prompt', 'video' or 'image', and not both files")
    check_keys(f"key in {where}", data, KEYS)
    name = data.get("video", data.get("image"))
    if not isinstance(data.get("prompt") or "", str):
        raise SoonerError(f"{where}: 'prompt' is {data['prompt']!r:.80}; write a text")
    if name is None and not data.get("prompt"):
        raise SoonerError(f"{where} has neither a file nor a 'prompt' with words; give one")
    path = None if name is None else home / str(name)
    if path is not None and not path.is_file():
        raise SoonerError(f"{where}: file '{path}' does not exist; check the path")
    return FilePrompt(path, "image" in data, data.get("prompt"))


def read_inputs(question: FilePrompt, pair: ModelPair, settings: CaptionSettings) -> dict[str, Any]:
    """Returns the processed inputs of a question, a batch of one.

    Raises:
        SoonerError: a file that can't be read, or is too long for the model.
    """
    target = pair.target
    if question.path is None:
        text = written(target.tokenizer, [{"role": "user", "content": question.prompt}])
        return dict(target.tokenizer(text, return_tensors="pt", add_special_tokens=False))
    check_sees(target.name, target.model.config.model_type, "file")
    if not question.is_image:
        options = replace(settings, prompt=question.prompt or settings.prompt)
        return prepare(question.path, pair, options).inputs
    try:
        picture = Image.open(question.path).convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise SoonerError(f"image '{question.path}' can't be read: {reason_of(error)}") from error
    prompt = question.prompt or settings.prompt or pair.prompt or GENERAL_PROMPT
    if isinstance(target.processor, OpenVLAProcessor):  # the prompt is the instruction
        batch = target.processor([picture], [prompt])
    else:
        text = chat(target.processor, prompt, "image")
        more = {"return_tensors": "pt", **bos_options(target.processor, text)}
        batch = target.processor(text=[text], images=[picture], **more)
    return on_device(batch, target.model)


def record_answers(
    pair: ModelPair, folder: Path, source: PromptSource, recipe: Recipe,
    on_batch: OnBatch | None = None,
) -> DataSet:  # fmt: skip
    """Returns the recording to train on, made in `folder` or continued there if need be.

    Raises:
        SoonerError: nothing to ask the model, or files that can't be read.
    """
    if source.data is not None and (source.data / INDEX).is_file():
        return DataSet.open(source.data)
    longest, model = source.max_new_tokens or LONGEST, pair.target.model
    if source.max_new_tokens is None and isinstance(model.config, OpenVLAConfig):
        known = model.config.norm_stats or {}  # no token ends an action
        dims = max(ActionStatistics.choose(known, key).dims for key in known)
        longest = int(model.config.action_horizon) * dims
    settings = CaptionSettings(prompt=source.prompt, frames=source.frames, max_new_tokens=longest)
    asked: list[Any] = [source.prompt, source.frames]
    if source.data is not None:
        questions = read_questions(source.data)
        asked += [
            (each.prompt, each.path and (each.path.name, each.path.stat().st_size))
            for each in questions
        ]
        batches = (read_inputs(each, pair, settings) for each in questions)
    elif pair.miniature is not None:
        asked.append(source.samples)
        batches = miniatures.find(pair.miniature).function("ask")(pair, source.samples)
    else:
        raise SoonerError(
            f"model '{pair.target.name}' needs --data: a folder of videos, or JSONL of prompts "
            "and files ({video|image, prompt})"
        )
    layers = recipe.recorded_layers(adapt(model).layers)
    return record(
        model, batches, folder, longest, layers=layers, source=short_hash(asked), on_batch=on_batch
    )
