"""Trains a draft head on recordings of its target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import SoonerError
from ...methods.eagle import Eagle3Config, Eagle3Head, EagleHead, MtpHead
from ...methods.eagle.target_print import check_target
from ...methods.threads import torch_threads
from ...models import adapt
from . import log as provenance
from .dataset import DataSet, Order, PaddedBatch, TrainingSample, collate, state_noise
from .log import TrainingLog, frozen, workers
from .losses import DepthAcceptance, HeadLoss, TokenLoss, fit_temperature
from .settings import HeadTraining
from .trainer import Trainer

MEASURED = 256
"""Most held-out samples that a measurement looks at."""

OnStep = Callable[[dict[str, Any]], None]


def train(
    model: Any,
    data: DataSet | Path | str | Sequence[DataSet],
    out: Path | str,
    settings: HeadTraining | None = None,
    *,
    resume: bool = True,
    progress: bool = True,
    threads: int | None = None,
    stop_after: int | None = None,
    on_step: OnStep | None = None,
) -> EagleHead | Eagle3Head | MtpHead:
    """Train a head for a frozen target; the target is left as it was.

    Args:
        model: the target, a loaded HF model.
        data: its recording, or several.
        out: gets `state.pt`, `log.jsonl` and the folder `head`.
        settings: the recipe.
        resume: go on from `state.pt`; the steps are then the same as without the interruption.
        progress: show a line.
        threads: torch threads; `None` leaves them as they are.
        stop_after: leave after so many steps, with the state saved.
        on_step: told each step's losses, and the acceptance where it is measured.

    Returns:
        The head, in eval mode, with its provenance.

    Raises:
        SoonerError: a recording of another target, or too small; a state of another recipe; a
            folder that can't be written.
    """
    recordings = _opened(data)
    trainer = DraftTrainer(model, recordings, Path(out), settings or HeadTraining())
    if resume:
        trainer.resume()
    with torch_threads(threads), frozen(model):
        return trainer.run(TrainingLog(trainer.out, progress, on_step), stop_after)


class DraftTrainer(Trainer):
    """Runs one training of a head, on all devices of a cluster.

    Args:
        model: the target.
        data: its recordings.
        out: the folder.
        settings: the recipe.
    """

    head: EagleHead | Eagle3Head | MtpHead
    settings: HeadTraining

    def __init__(
        self, model: Any, data: Sequence[DataSet], out: Path, settings: HeadTraining
    ) -> None:
        adapter = self.adapter = adapt(model)
        self.data = data
        for dataset in data:
            check_target(dataset.index["target"], adapter)
            check_layers(dataset, adapter, settings)
        self.samples, self.holdout = _split(data, settings)
        with torch.random.fork_rng():  # modules draw first weights from the global generator
            torch.manual_seed(settings.seed)
            head = self._first_head(settings)
        self.workers = workers(adapter.device)
        self.rank = self.workers.rank
        if settings.batch % self.workers.count:
            raise SoonerError(
                f"HeadTraining: batch is {settings.batch}, which {self.workers.count} devices "
                "can't share; make it a multiple"
            )
        self.order = Order(len(self.samples), settings.batch, settings.seed)
        self.temperature = 1.0
        optimizer = torch.optim.AdamW(
            head.parameters(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
        super().__init__(adapter, head, optimizer, settings, out)

    def _first_head(self, settings: HeadTraining) -> EagleHead | Eagle3Head | MtpHead:
        """Returns a head with random weights."""
        if settings.format == "eagle":
            return EagleHead.for_target(self.adapter)
        if settings.format == "mtp":
            return MtpHead.like(self.adapter).to(self.adapter.device)
        layer_ids = recorded_layers(self.adapter, settings)[1:]
        config = Eagle3Config.like(self.adapter, layer_ids, settings.draft_vocab_size)
        head = Eagle3Head(config)
        head.token_ids.copy_(frequent_tokens(self.samples, config.vocab_size, len(head.token_ids)))
        return head.to(self.adapter.device)

    def _loss(self) -> nn.Module:
        if isinstance(self.head, EagleHead):
            return HeadLoss(self.head, self.adapter, self.settings)
        return TokenLoss(self.head, self.adapter, self.settings)

    def run(self, log: TrainingLog, stop_after: int | None) -> EagleHead | Eagle3Head | MtpHead:
        """Go on to the last step, or for `stop_after` steps."""
        last = self.until(stop_after)
        loss, optimizer = self.workers.prepare(self._loss(), self.optimizer)
        self.take_steps(loss, optimizer, last, log)
        self.acceptance = self.measure()
        self.temperature = fit_temperature(
            self.head, self.adapter, self.holdout_batches(), self.settings.depth
        )
        self.save()
        return self.head.eval()

    def losses(self, loss: nn.Module) -> dict[str, Tensor]:
        settings = self.settings
        mine = self.order.at(self.step)[self.workers.rank :: self.workers.count]
        batch = self._batch([self.samples[number] for number in mine])
        noise = None
        if settings.noise and settings.format == "eagle":
            key = (settings.seed, self.step, self.workers.rank)
            noise = state_noise(batch.states.shape, batch.lengths, settings.noise, key)
        parts: dict[str, Tensor] = loss(batch, noise)
        return parts

    def backward(self, loss: Tensor) -> None:
        self.workers.backward(loss)

    def _batch(self, where: Sequence[tuple[DataSet, int]]) -> PaddedBatch:
        samples: list[TrainingSample] = [data[index] for data, index in where]
        is_whole = self.settings.span == "all"
        return collate(samples, self.adapter.embed_tokens, self.adapter.device, is_whole)

    def holdout_batches(self) -> Iterator[PaddedBatch]:
        size = self.settings.batch
        for start in range(0, len(self.holdout), size):
            yield self._batch(self.holdout[start : start + size])

    def measurement(self) -> DepthAcceptance:
        return DepthAcceptance(self.settings.depth)

    def digest(self) -> list[str]:
        return [dataset.digest for dataset in self.data]

    def save(self) -> None:
        self.workers.wait()
        super().save()

    def save_head(self, folder: Path) -> None:
        record = provenance.describe(self.data, self.settings, self.seconds, self.acceptance)
        self.head.with_provenance({**record, "step": self.step}, self.temperature)
        self.head.save_pretrained(folder)


def recorded_layers(adapter: Any, settings: HeadTraining) -> tuple[int, ...]:
    """`hidden_states` that a recording for these settings keeps; none is the last ones alone.

    EAGLE-3's are the decoder's output, which says what the target thinks, and then the three that
    the head reads.

    Raises:
        SoonerError: a target with so few layers that EAGLE-3 has no choice of its own for it.
    """
    if settings.format != "eagle3":
        return ()
    last, layers = int(adapter.layers), settings.layers
    if layers is None and last < 4:
        raise SoonerError(
            f"HeadTraining: layers is not set, and the target has {last} layers; EAGLE-3's own "
            "choice (2, n/2, n - 3) takes four or more"
        )
    return (last, *(layers or (2, last // 2, last - 3)))


def check_layers(data: DataSet, adapter: Any, settings: HeadTraining) -> None:
    """Refuse a recording of other states.

    Raises:
        SoonerError: names both.
    """
    expected = recorded_layers(adapter, settings)
    have = data.index["options"].get("layers", "()")
    if have != repr(expected):
        raise SoonerError(
            f"recording '{data.folder}' keeps hidden_states {have}, format '{settings.format}' "
            f"learns from {expected}; record the data anew, into another folder"
        )


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


def _split(
    data: Sequence[DataSet], settings: HeadTraining
) -> tuple[list[tuple[DataSet, int]], list[tuple[DataSet, int]]]:
    """Returns what is learnt, and what is held out: the last samples of each recording, since
    neighbours may be alike.
    """
    learnt, holdout = [], []
    for dataset in data:
        cut = len(dataset) - max(round(settings.holdout * len(dataset)), 1)
        learnt += [(dataset, index) for index in range(cut)]
        holdout += [(dataset, index) for index in range(max(cut, 0), len(dataset))]
    if not learnt:
        raise SoonerError(
            f"{len(holdout)} recorded samples are too few to train on and to hold some out; record "
            "more"
        )
    return learnt, holdout[:: max(-(-len(holdout) // MEASURED), 1)]
