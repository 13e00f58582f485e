"""Accuracy by length and depth, and the JSON-lines files that it is made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sooner.errors import SoonerError, did_you_mean
from sooner.generation import Prefill, generate
from sooner.methods import Method

from .sample import NeedleSample
from .task import NeedleTask

Reply = Callable[[NeedleSample], str]
"""Answers a sample."""

FIELDS = ("name", "kind", "unit", "lengths", "depths", "right", "asked")


@dataclass
class ResultGrid:
    """How many samples were answered right, by length and depth.

    Attributes:
        name: of the arm, such as `dense`.
        kind: `v-niah` or `mm-niah`.
        unit: what lengths count.
        lengths, depths: the axes, ascending.
        right: samples answered right, int `[lengths, depths]`.
        asked: samples in all, int `[lengths, depths]`.
    """

    name: str
    kind: str
    unit: str
    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    right: np.ndarray = field(default_factory=lambda: np.zeros(0))
    asked: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        shape = (len(self.lengths), len(self.depths))
        for axis in ("right", "asked"):
            given = np.asarray(getattr(self, axis), dtype=int)
            setattr(self, axis, given if given.size else np.zeros(shape, int))
            if getattr(self, axis).shape != shape:
                raise SoonerError(
                    f"grid '{self.name}': {axis} is {list(given.shape)}, but there are "
                    f"{shape[0]} lengths and {shape[1]} depths"
                )

    def add(self, length: int, depth: float, right: bool) -> None:
        """Count a sample."""
        place = self.lengths.index(length), self.depths.index(depth)
        self.asked[place] += 1
        self.right[place] += right

    @property
    def accuracy(self) -> np.ndarray:
        """Share of right answers, `[lengths, depths]`; NaN where nothing was asked."""
        return np.where(self.asked > 0, self.right / np.maximum(self.asked, 1), np.nan)

    @property
    def mean(self) -> float:
        """Mean of the cells that were asked; NaN if none was."""
        known = self.accuracy[self.asked > 0]
        return float(known.mean()) if known.size else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """As it goes into a result file."""
        told = {name: getattr(self, name) for name in FIELDS}
        return {**told, "right": self.right.tolist(), "asked": self.asked.tolist()}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> ResultGrid:
        """The grid of `as_dict`.

        Raises:
            SoonerError: an unknown or a missing key.
        """
        for key in told:
            if key not in FIELDS:
                raise SoonerError(f"grid has an unknown key '{key}'{did_you_mean(key, FIELDS)}")
        if missing := [name for name in FIELDS if name not in told]:
            raise SoonerError(f"grid has no {', '.join(missing)}; write it with as_dict()")
        axes = {name: tuple(told[name]) for name in ("lengths", "depths")}
        return cls(**{**told, **axes})


def write_samples(samples: Iterable[NeedleSample], path: Path | str) -> int:
    """Write each sample's record as a line of JSON; returns how many there are."""
    count = 0
    with open(path, "w", encoding="utf-8") as file:
        for sample in samples:
            file.write(json.dumps(sample.record()) + "\n")
            count += 1
    return count


def run(
    task: NeedleTask,
    reply: Reply,
    lengths: Sequence[int],
    depths: Sequence[float],
    seeds: Sequence[int] = (0,),
    *,
    name: str = "dense",
    path: Path | str | None = None,
    on_sample: Callable[[dict[str, Any]], None] | None = None,
) -> ResultGrid:
    """Ask every length, depth and seed.

    Args:
        reply: answers a sample, such as `reader(model, processor)`.
        name: of the arm.
        path: a JSON-lines file; each result is appended as it comes, and what is already there is
            not asked again.
        on_sample: told each new result: the record with `reply` and `right`.
    """
    grid = ResultGrid(name, task.kind, task.unit, tuple(lengths), tuple(depths))
    done = _done(path)
    for length in lengths:
        for depth in depths:
            for seed in seeds:
                key = (task.kind, task.unit, length, depth, seed)
                if key not in done:
                    sample = task.sample(length, depth, seed)
                    said = reply(sample)
                    told = {**sample.record(), "reply": said, "right": sample.score(said)}
                    done[key] = told["right"]
                    _keep(told, path, on_sample)
                grid.add(length, depth, done[key])
    return grid


def reader(
    model: Any,
    processor: Any,
    *,
    method: Method | None = None,
    prefill: Prefill | None = None,
    max_new_tokens: int = 16,
) -> Reply:
    """Answers samples with a model, greedily.

    Args:
        method: how to decode; plain by default.
        prefill: a sparse prefill, a pruner, or a compressor.
    """

    def reply(sample: NeedleSample) -> str:
        made = generate(
            model,
            sample.inputs(processor, model),
            method,
            prefill=prefill,
            max_new_tokens=max_new_tokens,
            do_sample=False,
        )
        return processor.tokenizer.decode(made.tokens[0], skip_special_tokens=True).strip()

    return reply


def read_grid(path: Path | str, name: str = "dense") -> ResultGrid:
    """The grid of a file that `run` wrote, with the axes that it finds there.

    Raises:
        SoonerError: no results, results of two tasks, or no JSON lines.
    """
    lines = _lines(Path(path))
    tasks = {(line["kind"], line["unit"]) for line in lines}
    if len(tasks) != 1:
        what = "results of several tasks" if tasks else "no results"
        raise SoonerError(f"'{path}' holds {what}; give the file of one run")
    kind, unit = tasks.pop()
    lengths = tuple(sorted({line["length"] for line in lines}))
    depths = tuple(sorted({line["depth"] for line in lines}))
    grid = ResultGrid(name, kind, unit, lengths, depths)
    for line in lines:
        grid.add(line["length"], line["depth"], line["right"])
    return grid


def _keep(told: dict[str, Any], path: Path | str | None, on_sample: Callable | None) -> None:
    if path is not None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
    if on_sample is not None:
        on_sample(told)


def _done(path: Path | str | None) -> dict[tuple, bool]:
    if path is None or not Path(path).exists():
        return {}
    names = ("kind", "unit", "length", "depth", "seed")
    return {tuple(line[name] for name in names): line["right"] for line in _lines(Path(path))}


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines if line.strip()]
        for one in found:
            one["kind"], one["unit"], one["length"], one["depth"], one["seed"], one["right"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SoonerError(f"'{path}' is no file of needle results ({error})") from error
    return found
