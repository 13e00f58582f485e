"""What trainings of every kind of draft share: steps, measurements, saved states, resuming."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ...errors import SoonerError
from ...io import replacing
from .log import ProgressLine, TrainingLog
from .settings import Recipe


class Measurement(Protocol):
    """Counts acceptance by depth, added up over batches."""

    def add(self, head: Any, adapter: Any, batch: Any) -> None:
        """Draft for one more batch."""

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data."""


class Trainer(ABC):
    """Runs one training. All that changes is in `state_dict`: order and noise follow from the step.

    Args:
        adapter: the target's.
        head: what learns, on the target's device.
        optimizer: of its parameters.
        settings: the recipe.
        out: gets `state.pt` and the folder `head`.

    Attributes:
        step, seconds: taken so far.
        acceptance: of the last measurement.
    """

    rank = 0
    """The rank of this process among those that train the head together; the first one reports
    and saves.
    """

    def __init__(
        self,
        adapter: Any,
        head: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Recipe,
        out: Path,
    ) -> None:
        self.adapter, self.head, self.optimizer = adapter, head, optimizer
        self.settings, self.out = settings, out
        self.step, self.seconds = 0, 0.0
        self.acceptance: dict[str, Any] = {}

    @abstractmethod
    def losses(self, loss: nn.Module) -> dict[str, torch.Tensor]:
        """Returns losses of the next step's batch; `loss` among them is what is learnt from."""

    @abstractmethod
    def holdout_batches(self) -> Iterator[Any]:
        """Yields samples that are kept for measuring."""

    @abstractmethod
    def measurement(self) -> Measurement:
        """Returns an empty one."""

    @abstractmethod
    def digest(self) -> Any:
        """A digest of what is learnt from, as saved states name it."""

    @abstractmethod
    def save_head(self, folder: Path) -> None:
        """Write the head as it is used, with its provenance."""

    def backward(self, loss: torch.Tensor) -> None:
        """Add up gradients."""
        loss.backward()

    def until(self, stop_after: int | None) -> int:
        """Returns the step to stop behind: the recipe's last, or the last of `stop_after` more."""
        last = self.settings.steps
        return last if stop_after is None else min(last, self.step + stop_after)

    def take_steps(
        self, loss: nn.Module, optimizer: torch.optim.Optimizer, last: int, log: TrainingLog
    ) -> None:
        """Go on to step `last`, measuring and saving as the recipe says.

        Raises:
            SoonerError: the folder can't be written.
        """
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SoonerError(f"folder '{self.out}' can't be written: {error.strerror}") from error
        with ProgressLine(log.visible and not self.rank) as line:
            while self.step < last:
                self._report(self._train_step(loss, optimizer), log, line)

    def _train_step(self, loss: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Returns one optimiser step."""
        begun, rate = time.perf_counter(), self.settings.rate(self.step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        self.head.train()
        parts = self.losses(loss)
        optimizer.zero_grad(set_to_none=True)
        self.backward(parts["loss"])
        nn.utils.clip_grad_norm_(self.head.parameters(), self.settings.clip)
        optimizer.step()
        self.step += 1
        values = {name: float(value.detach()) for name, value in parts.items()}
        self.seconds += time.perf_counter() - begun
        return {**values, "lr": rate}

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Returns acceptance by depth on held-out samples."""
        self.head.eval()
        results = self.measurement()
        for batch in self.holdout_batches():
            results.add(self.head, self.adapter, batch)
        return results.as_dict()

    def _report(self, parts: dict[str, Any], log: TrainingLog, line: ProgressLine) -> None:
        entry: dict[str, Any] = {
            "step": self.step,
            "steps": self.settings.steps,
            "seconds": round(self.seconds, 1),
            **parts,
        }
        if self.step % self.settings.check_every == 0:
            entry["check"] = self.acceptance = self.measure()
        if not self.rank:
            log.tell(entry, line)
        if self.step % self.settings.save_every == 0:
            self.save()

    def save(self) -> None:
        """Write the state and the head, each whole or not at all."""
        if self.rank:
            return
        self.save_head(self.out / "head")
        with replacing(self.out / "state.pt") as part:
            torch.save(self.state_dict(), part)

    def state_dict(self) -> dict[str, Any]:
        """Returns all that a resumed run needs."""
        return {
            "settings": self.settings.as_dict(),
            "data": self.digest(),
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
        now = {"settings": self.settings.as_dict(), "data": self.digest()}
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
