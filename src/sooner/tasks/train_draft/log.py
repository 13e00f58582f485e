"""How a training goes, and how the head came about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from ... import __version__
from ...provenance import revision
from .dataset import DataSet


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
    tree = revision()
    versions = {name: str(metadata.version(name)) for name in ("torch", "transformers")}
    return {
        "settings": settings.as_dict(),
        "data": [{"samples": len(dataset), "sha256": dataset.digest} for dataset in data],
        "seconds": round(seconds, 1),
        "acceptance": acceptance,
        "git": tree.commit and tree.commit[:8] + "+" * tree.is_dirty,
        "versions": {"sooner": __version__, **versions},
        "threads": torch.get_num_threads(),
    }
