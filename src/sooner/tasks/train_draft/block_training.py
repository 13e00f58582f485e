"""Trains a DFlash drafter on recordings of its target's layers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...checks import check_fields, check_keys, option
from ...errors import SoonerError
from ...io import replacing
from ...methods.dflash import loader
from ...methods.dflash.config import DFlashConfig
from ...methods.dflash.denoiser import DFlashModel
from ...methods.eagle.target_print import check_target
from ...methods.threads import torch_threads
from ...models import adapt
from . import log as provenance
from .blocks import BlockAcceptance, BlockBatch, BlockLoss, collate_blocks
from .dataset import DataSet, Order
from .log import ProgressLine, TrainingLog, frozen

MEASURED = 128
"""Most held-out samples that a measurement looks at."""


@dataclass(frozen=True)
class BlockTraining:
    """The recipe of a DFlash drafter.

    Attributes:
        steps: optimiser steps.
        lr: highest learning rate of AdamW; it rises over `warmup` steps and falls to 0 with the
            last one, both linearly.
        batch: samples of a step.
        warmup: steps of the rise.
        layers: of the drafter.
        block_size: entries of a block, its anchor included.
        anchors: most blocks of a sample in a step.
        decay: gamma of the weights of a block's places; the authors take 7 for blocks of 16, 5 for
            10 and 4 for 8.
        clip: largest norm of the gradient.
        weight_decay: of AdamW.
        holdout: share of the samples, the last ones, that are kept for measuring.
        check_every, save_every: steps between measurements, and between saved states.
        seed: of first weights, order and anchors.

    Raises:
        SoonerError: a value out of range.
    """

    steps: int = option(20_000, 1)
    lr: float = option(6e-4, 0, above=True)
    batch: int = option(16, 1)
    warmup: int = option(800, 0)
    layers: int = option(5, 1)
    block_size: int = option(16, 2)
    anchors: int = option(64, 1)
    decay: float = option(7.0, 0, above=True)
    clip: float = option(1.0, 0, above=True)
    weight_decay: float = option(0.01, 0)
    holdout: float = option(0.05, 0, 1, above=True)
    check_every: int = option(500, 1)
    save_every: int = option(500, 1)
    seed: int = option(0, 0)

    def __post_init__(self) -> None:
        check_fields(self, "BlockTraining: ")
        if self.warmup >= self.steps:
            raise SoonerError(
                f"BlockTraining: warmup is {self.warmup} of {self.steps} steps; it must be less "
                "than steps"
            )
        if self.holdout == 1:
            raise SoonerError("BlockTraining: holdout is 1.0; leave samples to train on")

    @staticmethod
    def of(told: Mapping[str, Any]) -> BlockTraining:
        """From a mapping, such as a JSON file's.

        Raises:
            SoonerError: an unknown key, or a value out of range or of another type.
        """
        check_keys("training setting", told, BlockTraining)
        return BlockTraining(**told)

    def rate(self, step: int) -> float:
        """Learning rate of step `step`, from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        return self.lr * (self.steps - step) / (self.steps - self.warmup)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def config(self, adapter: Any, mask: int | None = None) -> DFlashConfig:
        """Layers of the shape of a target's.

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
    """Which states a drafter reads of a target of `target` layers, as `target_layers` numbers them.

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


class BlockTrainer:
    """One training. All that changes is in `state_dict`: order and anchors follow from the step.

    Args:
        model: the target.
        data: its recording.
        out: the folder.
        settings: the recipe.
    """

    def __init__(self, model: Any, data: DataSet, out: Path, settings: BlockTraining) -> None:
        self.adapter = adapt(model)
        self.data, self.out, self.settings = data, out, settings
        check_target(data.index["target"], self.adapter)
        with torch.random.fork_rng():  # modules draw first weights from the global generator
            torch.manual_seed(settings.seed)
            self.head = DFlashModel(settings.config(self.adapter)).to(self.adapter.device)
        _check_layers(data, self.head.config)
        held = max(round(settings.holdout * len(data)), 1)
        if held >= len(data):
            raise SoonerError(
                f"{len(data)} recorded samples are too few to train on and to hold some out; "
                "record more"
            )
        self.train = range(len(data) - held)
        rest = range(len(data) - held, len(data))
        self.held_out = rest[:: max(-(-len(rest) // MEASURED), 1)]
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        self.order = Order(len(self.train), settings.batch, settings.seed)
        self.step, self.seconds = 0, 0.0
        self.acceptance: dict[str, Any] = {}

    def run(self, log: TrainingLog, stop_after: int | None) -> DFlashModel:
        """Go on to the last step, or for `stop_after` steps."""
        last = self.settings.steps
        if stop_after is not None:
            last = min(last, self.step + stop_after)
        loss = BlockLoss(self.head, self.adapter, self.settings.decay)
        self.out.mkdir(parents=True, exist_ok=True)
        with ProgressLine(log.shown) as line:
            while self.step < last:
                self._report(self._one(loss), log, line)
            self.acceptance = self.measure()
            self._save()
        return self.head.eval()

    def _one(self, loss: nn.Module) -> dict[str, Any]:
        """One optimiser step."""
        settings, begun = self.settings, time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(self.step)
        self.head.train()
        parts = loss(self._batch(self.order.at(self.step), self.step))
        self.optimizer.zero_grad(set_to_none=True)
        parts["loss"].backward()
        nn.utils.clip_grad_norm_(self.head.parameters(), settings.clip)
        self.optimizer.step()
        self.step += 1
        self.seconds += time.perf_counter() - begun
        told = {name: float(value.detach()) for name, value in parts.items()}
        return {**told, "lr": settings.rate(self.step - 1)}

    def _batch(self, numbers: Sequence[int], step: int) -> BlockBatch:
        settings = self.settings
        return collate_blocks(
            [self.data[number] for number in numbers], settings.block_size, self.adapter.device,
            settings.anchors, (settings.seed, step),
        )  # fmt: skip

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Acceptance by depth on held-out samples."""
        self.head.eval()
        found = BlockAcceptance(self.settings.block_size - 1)
        for batch in self._held_out():
            found.add(self.head, self.adapter, batch)
        return found.as_dict()

    def _held_out(self) -> Iterator[BlockBatch]:
        size = self.settings.batch
        for start in range(0, len(self.held_out), size):
            yield self._batch(self.held_out[start : start + size], self.settings.steps)

    def _report(self, parts: dict[str, Any], log: TrainingLog, line: ProgressLine) -> None:
        settings = self.settings
        entry: dict[str, Any] = {
            "step": self.step, "steps": settings.steps, "seconds": round(self.seconds, 1), **parts,
        }  # fmt: skip
        if self.step % settings.check_every == 0:
            entry["check"] = self.acceptance = self.measure()
        log.tell(entry, line)
        if self.step % settings.save_every == 0:
            self._save()

    def _save(self) -> None:
        """Write the state and the drafter, each whole or not at all."""
        told = provenance.describe([self.data], self.settings, self.seconds, self.acceptance)
        target = self.data.index["target"]
        told |= {"step": self.step, "target": target}
        self.head.config = replace(self.head.config, provenance=told)
        loader.save(self.head, self.out / "head")
        with replacing(self.out / "state.pt") as part:
            torch.save(self.state_dict(), part)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return {
            "settings": self.settings.as_dict(),
            "data": self.data.digest,
            "step": self.step,
            "seconds": self.seconds,
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def resume(self) -> bool:
        """Load `state.pt`, if there is one.

        Raises:
            SoonerError: it is of another recipe or other data.
        """
        path = self.out / "state.pt"
        if not path.is_file():
            return False
        state = torch.load(path, weights_only=True, map_location=self.adapter.device)
        now = {"settings": self.settings.as_dict(), "data": self.data.digest}
        for name, value in now.items():
            if state[name] != value:
                raise SoonerError(
                    f"'{path}' was trained with other {name}; train with those, into another "
                    "folder, or with resume=False (--fresh)"
                )
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]
        return True


def _check_layers(data: DataSet, config: DFlashConfig) -> None:
    told, wanted = data.index["options"].get("layers"), repr(config.layers)
    if told != wanted:
        raise SoonerError(
            f"'{data.folder}' holds states of layers {told or 'of the output alone'}, the drafter "
            f"reads {wanted}; record into another folder"
        )
