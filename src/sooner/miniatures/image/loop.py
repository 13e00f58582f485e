"""One resumable training loop for the three parts of the image miniature."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from ..progress import Line
from ..training import threads as torch_threads


class Part(Protocol):
    """What the loop runs. Step `index` must follow from the state and `index` alone.

    Attributes:
        config: the recipe, a dataclass; resuming under another one is refused.
        steps: how many there are.
        modules: everything with weights, by name.
        optimizer: of those weights.
    """

    config: Any
    steps: int
    modules: Any
    optimizer: torch.optim.Optimizer

    def step(self, index: int) -> dict[str, Any]:
        """Make one optimizer step; figures for the log."""
        ...

    def extra(self) -> dict[str, Any]:
        """State beyond modules and optimizer, as tensors and plain data."""
        ...

    def restore(self, extra: dict[str, Any]) -> None:
        """Take `extra` back; called before weights are loaded, so that shapes can follow."""
        ...

    def finish(self, folder: Path, seconds: float) -> None:
        """Write the checkpoint and its card."""
        ...


@dataclasses.dataclass
class Schedule:
    """Linear warm-up over 100 steps (a tenth, if fewer), then a cosine to 3 % of the peak."""

    peak: float
    steps: int

    def at(self, step: int) -> float:
        """Learning rate of a step."""
        warm = min(100, max(self.steps // 10, 1))
        if step < warm:
            return self.peak * (step + 1) / warm
        done = (step - warm) / max(self.steps - warm, 1)
        return self.peak * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))

    def set(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Give a step's learning rate to all groups."""
        for group in optimizer.param_groups:
            group["lr"] = self.at(step)


def decayed(model: torch.nn.Module, decay: float) -> list[dict[str, Any]]:
    """Optimizer groups: weight decay for matrices only."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]


def run(
    part: Part,
    out: Path,
    *,
    resume: bool = True,
    threads: int | None = None,
    progress: bool = True,
    stop_after: int | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Run a part's steps, saving `state.pt` and `log.jsonl` into `out`; see `recipe.train`."""
    out.mkdir(parents=True, exist_ok=True)
    done, seconds = _load(part, out) if resume else (0, 0.0)
    last = part.steps if stop_after is None else min(part.steps, done + stop_after)
    with torch_threads(threads), Line(progress) as line:
        for index in range(done, last):
            begun = time.perf_counter()
            report = part.step(index)
            seconds += time.perf_counter() - begun
            entry = {"step": index + 1, "steps": part.steps, "seconds": round(seconds, 1)} | report
            if (index + 1) % 10 == 0 or index + 1 == last:
                _log(out, entry)
            if (index + 1) % part.config.save_every == 0:
                _save(part, out, index + 1, seconds)
            line.show({"stage": 0, "kind": type(part).__name__.lower(), **entry})
            if on_step is not None:
                on_step(entry)
        if last > done:
            _save(part, out, last, seconds)
        if last == part.steps:
            part.finish(out / "checkpoint", seconds)
    return out / "checkpoint"


def _log(out: Path, entry: dict[str, Any]) -> None:
    with (out / "log.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def _save(part: Part, out: Path, step: int, seconds: float) -> None:
    state = {
        "recipe": dataclasses.asdict(part.config), "step": step, "seconds": seconds,
        "extra": part.extra(), "optimizer": part.optimizer.state_dict(),
        "modules": {name: module.state_dict() for name, module in part.modules.items()},
    }  # fmt: skip
    fresh = out / "state.pt.part"
    torch.save(state, fresh)
    fresh.replace(out / "state.pt")


def _load(part: Part, out: Path) -> tuple[int, float]:
    """Take up `state.pt` if there is one: steps done and seconds spent."""
    path = out / "state.pt"
    if not path.exists():
        return 0, 0.0
    state = torch.load(path, weights_only=True)
    if state["recipe"] != dataclasses.asdict(part.config):
        raise ValueError(
            f"{path} is of another recipe; "
            "train with that recipe, into another folder, or with resume=False"
        )
    part.restore(state["extra"])
    for name, module in part.modules.items():
        module.load_state_dict(state["modules"][name])
    part.optimizer.load_state_dict(state["optimizer"])
    return state["step"], state["seconds"]
