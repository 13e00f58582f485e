"""Records what a frozen target says to prompts, and its states while it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...engine.interface import AdapterLike, Prompt
from ...engine.runner import ModelRunner
from ...errors import SoonerError
from ...generation import generate
from ...methods.context import to_device
from ...methods.target_layers import LayerStates, layer_states
from ...methods.target_print import differences, fingerprint
from ...models import adapt
from ...models.base import Packing
from .dataset import FORMAT, DataSet, TrainingSample, read_index

SHARD_SAMPLES = 512

OnBatch = Callable[[dict[str, Any]], None]
"""Told the recording's index after every batch; what is not written yet is not counted."""


def record(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    out: Path | str,
    max_new_tokens: int,
    *,
    layers: Sequence[int] = (),
    shard_samples: int = SHARD_SAMPLES,
    on_batch: OnBatch | None = None,
    **options: Any,
) -> DataSet:
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
        layers: whose states are kept, side by side, numbered as `methods.target_layers` does; none
            is the decoder's output.
        shard_samples: samples of a file, at least.
        on_batch: told the progress.
        options: anything else that `model.generate` takes.

    Raises:
        SoonerError: the folder holds a recording of another model or with other options, or can't
            be written; a model that is not supported.
    """
    target, home = adapt(model), Path(out)
    merged = {"max_new_tokens": max_new_tokens, "do_sample": False, **options}
    details = {**merged, "layers": tuple(layers)} if layers else merged
    data = _opened(home, target, {name: repr(details[name]) for name in sorted(details)})
    if data.index["is_complete"]:
        return data
    pending, batches_done = list[TrainingSample](), 0
    was_training = model.training
    model.eval()
    try:
        for inputs in islice(batches, data.index["batches"], None):
            pending += _answer(target, to_device(inputs, target.device), merged, layers)
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


def _opened(home: Path, target: AdapterLike, options: dict[str, Any]) -> DataSet:
    """Returns the recording that is to be made or continued."""
    index = read_index(home)
    if index is None:
        counts = {"is_complete": False, "batches": 0, "samples": 0, "shards": []}
        data = DataSet(
            home, {"format": FORMAT, "target": fingerprint(target), "options": options, **counts}
        )
        data.save_index()
        return data
    if differences(index["target"], target):
        raise SoonerError(
            f"'{home}' holds a recording of another target ({index['target'].get('model_type')}); "
            "record into another folder"
        )
    if index["options"] != options:
        raise SoonerError(
            f"'{home}' holds a recording with options {index['options']}, not {options}; record "
            "into another folder"
        )
    return DataSet(home, index)


@torch.inference_mode()
def _answer(
    target: AdapterLike, inputs: dict[str, Any], options: dict[str, Any], layers: Sequence[int]
) -> list[TrainingSample]:
    """Returns the samples of one batch, on the host; an answer of a single token has nothing to
    draft, and no sample.
    """
    tokens = generate(target.model, inputs, **options).tokens
    prompt = target.embed_prompt(inputs)
    copies = len(tokens) // prompt.rows
    prompt = prompt if copies == 1 else target.repeat_prompt(prompt, copies)
    ids = Packing.of(inputs)(inputs["input_ids"]).repeat_interleave(copies, 0)
    known = ids.clamp(0, target.vocab_size - 1)  # a placeholder may lie behind the vocabulary
    stored = (target.embed_tokens(known) != prompt.embeds).any(-1)  # [rows, width]
    read, outputs = _states(target, prompt, tokens, layers)
    samples = []
    for row, answer in enumerate(tokens):
        if len(answer) < 2:
            continue
        length, more = prompt.lengths[row], len(answer)
        apart = stored[row, :length]
        output = outputs[row, : more - 1].to(read.device)
        words = ids[row, :length].masked_fill(apart, 0).cpu()
        samples.append(
            TrainingSample(
                tokens=torch.cat([words, torch.tensor(answer)]),
                prompt=length,
                states=torch.cat([read[row, :length], output]).half().cpu(),
                stored=torch.cat([apart.cpu(), torch.zeros(more, dtype=torch.bool)]),
                embeds=prompt.embeds[row, :length][apart].half().cpu(),
            )
        )
    return samples


def _states(
    target: AdapterLike, prompt: Prompt, outputs: list[list[int]], layers: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Returns states of the prompts `[rows, width, hidden]` and of the answers `[rows, most,
    hidden]`.
    """
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
