"""Trains a DFlash drafter on recordings of its target's layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...checks import option
from ...errors import SoonerError
from ...methods.dflash import loader
from ...methods.dflash.config import DFlashConfig
from ...methods.dflash.denoiser import DFlashModel
from ...methods.eagle.target_print import check_target
from ...methods.threads import torch_threads
from ...models import adapt
from . import log as provenance
from .blocks import BlockAcceptance, BlockBatch, BlockLoss, collate_blocks
from .dataset import DataSet, Order
from .log import TrainingLog, frozen
from .settings import Recipe
from .trainer import Trainer

MEASURED = 128
"""Most held-out samples that a measurement looks at."""


@dataclass(frozen=True)
class BlockTraining(Recipe):
    """The recipe of a DFlash drafter, beside what `Recipe` says.

    Attributes:
        layers: of the drafter.
        block_size: entries of a block, its anchor included.
        anchors: most blocks of a sample in a step.
        decay: gamma of the weights of a block's places; the authors take 7 for blocks of 16, 5 for
            10 and 4 for 8.

    Raises:
        SoonerError: a value out of range.
    """

    lr: float = option(6e-4, 0, above=True)
    max_warmup: ClassVar[int] = 800
    clip: float = option(1.0, 0, above=True)
    layers: int = option(5, 1)
    block_size: int = option(16, 2)
    anchors: int = option(64, 1)
    decay: float = option(7.0, 0, above=True)

    def config(self, adapter: Any, mask: int | None = None) -> DFlashConfig:
        """Returns layers of the shape of a target's.

        Args:
            adapter: the target's.
            mask: id of the mask token; by default the last of the vocabulary, which tokenizers
                seldom use.
        """
        text = adapter.text_config
        heads, hidden = int(text.num_attention_heads), int(text.hidden_size)
        rope = getattr(text, "rope_parameters", None) or {}
        return DFlashConfig(
            hidden_size=hidden,
            intermediate_size=int(text.intermediate_size),
            num_hidden_layers=self.layers,
            num_attention_heads=heads,
            num_key_value_heads=int(getattr(text, "num_key_value_heads", None) or heads),
            head_dim=int(getattr(text, "head_dim", None) or hidden // heads),
            rms_norm_eps=float(getattr(text, "rms_norm_eps", 1e-6)),
            rope_parameters={
                "rope_type": "default",
                "rope_theta": float(rope.get("rope_theta") or 10_000.0),
            },
            max_position_embeddings=int(adapter.max_positions or 40_960),
            block_size=self.block_size,
            mask_token_id=adapter.vocab_size - 1 if mask is None else mask,
            layers=layers_to_read(adapter.layers, self.layers),
            vocab_size=adapter.vocab_size,
        )


def layers_to_read(target: int, drafter: int) -> tuple[int, ...]:
    """Returns which states a drafter reads of a target of `target` layers, as `target_layers`
    numbers them.

    As many as the drafter has layers, spread evenly from the second layer's to the third last's
    (the authors' choice); of targets that are too shallow, all but the last.
    """
    first, last = 2, target - 2
    if last - first + 1 < drafter:
        return tuple(range(max(target - drafter, 1), target))
    if drafter == 1:
        return (target // 2,)
    span = last - first
    return tuple(first + round(index * span / (drafter - 1)) for index in range(drafter))


OnStep = Callable[[dict[str, Any]], None]


def train_blocks(
    model: Any,
    data: DataSet | Path | str,
    out: Path | str,
    settings: BlockTraining | None = None,
    *,
    resume: bool = True,
    progress: bool = True,
    threads: int | None = None,
    stop_after: int | None = None,
    on_step: OnStep | None = None,
) -> DFlashModel:
    """Train a drafter for a frozen target; the target is left as it was.

    Args:
        model: the target, a loaded HF model.
        data: its recording with `layers` of `layers_to_read`.
        out: gets `state.pt`, `log.jsonl` and the folder `head`.
        settings: the recipe.
        resume: go on from `state.pt`; the steps are then the same as without the interruption.
        progress, threads, stop_after, on_step: as of `train`.

    Returns:
        The drafter, in eval mode.

    Raises:
        SoonerError: a recording of another target, of other layers, or too small; a state of
            another recipe.
    """
    recording = data if isinstance(data, DataSet) else DataSet.open(data)
    trainer = BlockTrainer(model, recording, Path(out), settings or BlockTraining())
    if resume:
        trainer.resume()
    with torch_threads(threads), frozen(model):
        return trainer.run(TrainingLog(trainer.out, progress, on_step), stop_after)


class BlockTrainer(Trainer):
    """One training of a DFlash drafter; anchors follow from the step, as the order does.

    Args:
        model: the target.
        data: its recording.
        out: the folder.
        settings: the recipe.
    """

    head: DFlashModel
    settings: BlockTraining

    def __init__(self, model: Any, data: DataSet, out: Path, settings: BlockTraining) -> None:
        adapter = adapt(model)
        self.data = data
        check_target(data.index["target"], adapter)
        with torch.random.fork_rng():  # modules draw first weights from the global generator
            torch.manual_seed(settings.seed)
            head = DFlashModel(settings.config(adapter)).to(adapter.device)
        _check_layers(data, head.config)
        count = max(round(settings.holdout * len(data)), 1)
        if count >= len(data):
            raise SoonerError(
                f"{len(data)} recorded samples are too few to train on and to hold some out; "
                "record more"
            )
        self.train = range(len(data) - count)
        rest = range(len(data) - count, len(data))
        self.holdout = rest[:: max(-(-len(rest) // MEASURED), 1)]
        self.order = Order(len(self.train), settings.batch, settings.seed)
        optimizer = torch.optim.AdamW(
            head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        super().__init__(adapter, head, optimizer, settings, out)

    def run(self, log: TrainingLog, stop_after: int | None) -> DFlashModel:
        """Go on to the last step, or for `stop_after` steps."""
        loss = BlockLoss(self.head, self.adapter, self.settings.decay)
        self.take_steps(loss, self.optimizer, self.until(stop_after), log)
        self.acceptance = self.measure()
        self.save()
        return self.head.eval()

    def losses(self, loss: nn.Module) -> dict[str, Tensor]:
        parts: dict[str, Tensor] = loss(self._batch(self.order.at(self.step), self.step))
        return parts

    def _batch(self, numbers: Sequence[int], step: int) -> BlockBatch:
        settings = self.settings
        return collate_blocks(
            [self.data[number] for number in numbers], settings.block_size, self.adapter.device,
            settings.anchors, (settings.seed, step),
        )  # fmt: skip

    def holdout_batches(self) -> Iterator[BlockBatch]:
        size = self.settings.batch
        for start in range(0, len(self.holdout), size):
            yield self._batch(self.holdout[start : start + size], self.settings.steps)

    def measurement(self) -> BlockAcceptance:
        return BlockAcceptance(self.settings.block_size - 1)

    def digest(self) -> str:
        return self.data.digest

    def save_head(self, folder: Path) -> None:
        record = provenance.describe([self.data], self.settings, self.seconds, self.acceptance)
        record |= {"step": self.step, "target": self.data.index["target"]}
        self.head.config = replace(self.head.config, provenance=record)
        loader.save(self.head, folder)


def _check_layers(data: DataSet, config: DFlashConfig) -> None:
    actual, expected = data.index["options"].get("layers"), repr(config.layers)
    if actual != expected:
        raise SoonerError(
            f"'{data.folder}' holds states of layers {actual or 'of the output alone'}, the "
            "drafter "
            f"reads {expected}; record into another folder"
        )
