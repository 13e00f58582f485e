"""Trains a DFlash drafter on recordings of its target's layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...methods.dflash import loader
from ...methods.dflash.config import DFlashConfig
from ...methods.dflash.denoiser import DFlashModel
from .blocks import BlockAcceptance, BlockBatch, BlockLoss, collate_blocks
from .settings import BlockTraining
from .trainer import Place, Trainer


def drafter_config(settings: BlockTraining, adapter: Any, mask: int | None = None) -> DFlashConfig:
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
        num_hidden_layers=settings.layers,
        num_attention_heads=heads,
        num_key_value_heads=int(getattr(text, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(text, "head_dim", None) or hidden // heads),
        rms_norm_eps=float(getattr(text, "rms_norm_eps", 1e-6)),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": float(rope.get("rope_theta") or 10_000.0),
        },
        max_position_embeddings=int(adapter.max_positions or 40_960),
        block_size=settings.block_size,
        mask_token_id=adapter.vocab_size - 1 if mask is None else mask,
        layers=layers_to_read(adapter.layers, settings.layers),
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

    def losses(self, loss: nn.Module, batch: BlockBatch) -> dict[str, Tensor]:
        parts: dict[str, Tensor] = loss(batch)
        return parts

    def batch(self, where: Sequence[Place], step: int) -> BlockBatch:
        settings, workers = self.settings, self.accelerator
        return collate_blocks(
            [data[index] for data, index in where], settings.block_size, self.adapter.device,
            settings.anchors, (settings.seed, step * workers.num_processes + workers.process_index),
        )  # fmt: skip

    def measurement(self) -> BlockAcceptance:
        return BlockAcceptance(self.settings.block_size - 1)

    def write_head(self, folder: Path, record: dict[str, Any]) -> None:
        record = {**record, "target": self.data[0].index["target"]}
        self.head.config = replace(self.head.config, provenance=record)
        loader.save(self.head, folder)
