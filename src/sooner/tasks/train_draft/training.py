"""Trains a draft head on recordings of its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import SoonerError
from ...methods.dflash.denoiser import DFlashModel
from ...methods.eagle import Eagle3Config, Eagle3Head, EagleHead, MtpHead
from ...methods.threads import torch_threads
from .blocks import (
    BlockBatch,
    BlockLoss,
    block_hits,
    collate_blocks,
    drafter_config,
    layers_to_read,
)
from .dataset import DataSet, PaddedBatch, TrainingSample, collate, state_noise
from .losses import HeadLoss, chain_hits, fit_temperature
from .settings import BlockTraining, HeadTraining, Recipe
from .trainer import OnStep, Trainer


def train(
    model: Any,
    data: DataSet | Path | str | Sequence[DataSet],
    out: Path | str,
    settings: Recipe | None = None,
    *,
    resume: bool = True,
    progress: bool = True,
    threads: int | None = None,
    stop_after: int | None = None,
    on_step: OnStep | None = None,
) -> Any:
    """Train a head for a frozen target; the target is left as it was.

    Args:
        model: the target, a loaded HF model.
        data: its recording, or several.
        out: gets `state.pt`, `log.jsonl` and the folder `head`.
        settings: the recipe, of a head (`HeadTraining`) or of a DFlash drafter (`BlockTraining`).
        resume: go on from `state.pt`; the steps are then the same as without the interruption.
        progress: show a line.
        threads: torch threads; `None` leaves them as they are.
        stop_after: leave after so many steps, with the state saved.
        on_step: told each step's losses, and the acceptance where it is measured.

    Returns:
        The head (`EagleHead`, `Eagle3Head`, `MtpHead` or `DFlashModel`), in eval mode, with its
        provenance.

    Raises:
        SoonerError: a recording of another target, or too small; a state of another recipe; a
            folder that can't be written.
    """
    recipe = settings or HeadTraining()
    kind: type[Trainer] = BlockTrainer if isinstance(recipe, BlockTraining) else HeadTrainer
    trainer = kind(model, _opened(data), Path(out), recipe)
    if resume:
        trainer.resume()
    with torch_threads(threads), frozen(model):
        return trainer.run(progress, on_step, stop_after)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """While it lasts, no weight of `model` gets a gradient, and it is in eval mode."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    was_training = model.training
    for weight in trained:
        weight.requires_grad_(False)
    model.eval()
    try:
        yield
    finally:
        for weight in trained:
            weight.requires_grad_(True)
        model.train(was_training)


class HeadTrainer(Trainer):
    """Trains a head of EAGLE, EAGLE-3 or multi-token prediction."""

    head: EagleHead | Eagle3Head | MtpHead
    settings: HeadTraining
    temperature = 1.0

    def layers(self) -> tuple[int, ...]:
        return recorded_layers(self.adapter, self.settings)

    def first_head(self) -> EagleHead | Eagle3Head | MtpHead:
        if self.settings.format == "eagle":
            return EagleHead.for_target(self.adapter)
        if self.settings.format == "mtp":
            return MtpHead.like(self.adapter)
        config = Eagle3Config.like(self.adapter, self.layers()[1:], self.settings.draft_vocab_size)
        head = Eagle3Head(config)
        head.token_ids.copy_(frequent_tokens(self.samples, config.vocab_size, len(head.token_ids)))
        return head

    def loss(self) -> nn.Module:
        return HeadLoss(self.head, self.adapter, self.settings)

    def batch(self, samples: Sequence[TrainingSample], step: int) -> PaddedBatch:
        settings, adapter = self.settings, self.adapter
        batch = collate(samples, adapter.embed_tokens, adapter.device, settings.span == "all")
        if settings.noise and settings.format == "eagle" and step < settings.steps:
            key = (settings.seed, step, self.accelerator.process_index)
            batch.states.add_(state_noise(batch.states.shape, batch.lengths, settings.noise, key))
        return batch

    def hits(self, batch: PaddedBatch) -> tuple[Tensor, Tensor]:
        return chain_hits(self.head, self.adapter, batch, self.settings.depth)

    def run(self, progress: bool, on_step: OnStep | None, stop_after: int | None) -> Any:
        super().run(progress, on_step, stop_after)
        self.temperature = fit_temperature(
            self.head, self.adapter, self.holdout_batches(), self.settings.depth
        )
        self.save()
        return self.head.eval()

    def write_head(self, folder: Path, record: dict[str, Any]) -> None:
        self.head.with_provenance(record, self.temperature)
        self.head.save_pretrained(folder)


class BlockTrainer(Trainer):
    """One training of a DFlash drafter; anchors follow from the step, as the order does."""

    head: DFlashModel
    settings: BlockTraining
    measured = 128

    def layers(self) -> tuple[int, ...]:
        return layers_to_read(self.adapter.layers, self.settings.layers)

    def first_head(self) -> DFlashModel:
        return DFlashModel(drafter_config(self.settings, self.adapter))

    def loss(self) -> nn.Module:
        return BlockLoss(self.head, self.adapter, self.settings.decay)

    def batch(self, samples: Sequence[TrainingSample], step: int) -> BlockBatch:
        settings, workers = self.settings, self.accelerator
        key = (settings.seed, step * workers.num_processes + workers.process_index)
        return collate_blocks(
            samples, settings.block_size, self.adapter.device, settings.anchors, key
        )

    def hits(self, batch: BlockBatch) -> tuple[Tensor, Tensor]:
        return block_hits(self.head, self.adapter, batch)

    def write_head(self, folder: Path, record: dict[str, Any]) -> None:
        record = {**record, "target": self.data[0].index["target"]}
        self.head.config = replace(self.head.config, provenance=record)
        self.head.save_pretrained(folder)


def recorded_layers(adapter: Any, settings: Recipe) -> tuple[int, ...]:
    """Returns the layers whose `hidden_states` a recording for these settings keeps; none is the
    last ones alone.

    EAGLE-3's are the decoder's output, which says what the target thinks, and then the three that
    the head reads.

    Raises:
        SoonerError: a target with so few layers that EAGLE-3 has no choice of its own for it.
    """
    if isinstance(settings, BlockTraining):
        return layers_to_read(adapter.layers, settings.layers)
    if not isinstance(settings, HeadTraining) or settings.format != "eagle3":
        return ()
    last, layers = int(adapter.layers), settings.layers
    if layers is None and last < 4:
        raise SoonerError(
            f"HeadTraining: layers is not set, and the target has {last} layers; EAGLE-3's own "
            "choice (2, n/2, n - 3) takes four or more"
        )
    return (last, *(layers or (2, last // 2, last - 3)))


def frequent_tokens(samples: Sequence[tuple[DataSet, int]], vocab: int, count: int) -> Tensor:
    """Returns the `count` tokens that recorded answers hold most often, ascending, `[count]`."""
    counts = torch.zeros(vocab, dtype=torch.long)
    for data, index in samples:
        sample = data[index]
        counts += sample.tokens[sample.prompt :].bincount(minlength=vocab)
    return counts.argsort(descending=True, stable=True)[:count].sort()[0]


def _opened(data: DataSet | Path | str | Sequence[DataSet]) -> list[DataSet]:
    if isinstance(data, DataSet):
        return [data]
    return [DataSet.open(data)] if isinstance(data, Path | str) else list(data)
