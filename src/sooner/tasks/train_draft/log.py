"""Where a head is trained, how the training goes, and how the head came about."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

from ... import __version__
from .dataset import DataSet


class Workers(Protocol):
    """The processes that one training has."""

    rank: int
    count: int

    def prepare(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]: ...

    def backward(self, loss: Tensor) -> None: ...

    def wait(self) -> None: ...


class Alone:
    """One process that has one device."""

    rank, count = 0, 1

    def prepare(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        return module, optimizer

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def wait(self) -> None:
        """Returns at once, as there is nobody to wait for."""


class Accelerated:
    """The processes that `accelerate launch` has begun, one for each GPU."""

    def __init__(self) -> None:
        from accelerate import Accelerator

        self.accelerator = Accelerator()
        self.rank = self.accelerator.process_index
        self.count = self.accelerator.num_processes

    def prepare(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        prepared: Any = self.accelerator.prepare(module, optimizer)
        return prepared

    def backward(self, loss: Tensor) -> None:
        self.accelerator.backward(loss)

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()


def workers(device: torch.device) -> Workers:
    """Returns the processes for a target on `device`."""
    return Alone() if device.type == "cpu" else Accelerated()


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


class ProgressLine:
    """A context manager; nothing is written when `visible` is False."""

    def __init__(self, visible: bool) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(), disable=not visible,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=None, said="")

    def __enter__(self) -> ProgressLine:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, entry: dict[str, Any]) -> None:
        hidden = ("stage", "kind", "step", "steps", "seconds", "check")
        text = " ".join(f"{key} {value:.3g}" for key, value in entry.items() if key not in hidden)
        name = f"stage {entry['stage'] + 1}: {entry['kind']}"
        self.bar.update(
            self.task, description=name, completed=entry["step"], total=entry["steps"], said=text
        )


EVERY = 20

"""Steps between two lines of the file."""


class TrainingLog:
    """Passes entries on.

    Args:
        folder: where `log.jsonl` is.
        visible: whether a progress line is shown.
        on_step: the caller.
    """

    def __init__(
        self, folder: Path, visible: bool, on_step: Callable[[dict[str, Any]], None] | None
    ) -> None:
        self.folder, self.visible, self.on_step = folder, visible, on_step

    def tell(self, entry: dict[str, Any], line: ProgressLine) -> None:
        """Records one step."""
        chain = entry.get("check", {}).get("chain")
        extra = {} if chain is None else {"first": chain[0]}
        line.show({"stage": 0, "kind": "head", **entry, **extra})
        if self.on_step is not None:
            self.on_step(entry)
        if entry["step"] % EVERY == 0 or "check" in entry:
            with (self.folder / "log.jsonl").open("a") as file:
                file.write(json.dumps(entry) + "\n")


def describe(
    data: Sequence[DataSet],
    settings: Any,
    seconds: float,
    acceptance: dict[str, Any],
) -> dict[str, Any]:
    """Returns the recipe, what it was applied to, what it took, and how good the head is.

    Args:
        data: the recordings.
        settings: the recipe, of heads or of blocks.
        seconds: of training.
        acceptance: on held-out samples.
    """
    return {
        "settings": settings.as_dict(),
        "data": [{"samples": len(dataset), "sha256": dataset.digest} for dataset in data],
        "seconds": round(seconds, 1),
        "acceptance": acceptance,
        "git": revision(),
        "versions": {
            "sooner": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        },
        "threads": torch.get_num_threads(),
    }


def revision() -> str | None:
    """Returns the git revision of this package, `+` behind it if files differ; `None` outside of
    git.
    """
    home = Path(__file__).parent
    commit = _git(home, "rev-parse", "--short", "HEAD")
    if commit is None:
        return None
    return commit + ("+" if _git(home, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None
