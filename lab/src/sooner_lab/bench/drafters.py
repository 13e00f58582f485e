"""`sooner bench drafters`: trained drafters of the video miniature against chains of themselves.

The arms are timed as `bench caption` times them, on the same clips; acceptance is counted by depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.methods import Method, load_drafter
from sooner.methods.trained import method_of
from sooner.tasks.clip import Clip

from .caption import CaptionBench, opened
from .caption_settings import BLOCK, DEPTH, KNOWN, TRAINED, DrafterBenchSettings
from .goals import goal
from .render import Page, Table
from .run import Data, Keep, Progress

GOALS: tuple[tuple[str, str, float, bool], ...] = (
    ("eagle3-chain", "mean_acceptance_length", 2.0, False),
    ("eagle3", "mean_acceptance_length", 1.1, True),
    ("eagle3", "decode_speedup", 1.0, False),
    ("mtp-chain", "mean_acceptance_length", 2.0, False),
    ("mtp", "mean_acceptance_length", 1.1, True),
    ("mtp", "decode_speedup", 1.0, False),
    ("dflash", "mean_acceptance_length", 4.0, False),
    ("dflash", "decode_speedup", 1.0, False),
    ("ddtree", "mean_acceptance_length", 1.1, True),
    ("ddtree", "decode_speedup", 1.0, False),
)
"""Arm, figure, least value, and whether the figure is divided by that of the arm's baseline."""


def run(
    settings: DrafterBenchSettings, progress: Progress = print, keep: Keep | None = None
) -> Data:
    """Measure and return the result: the rows of `bench caption` with `depths`, and `goals`."""
    with opened(settings, DrafterBench) as bench:
        recorder = bench.recorder("drafters", keep, goals)
        rows = bench.rows(bench.measure((*settings.arms, *bench.heads), progress))
        for arm in rows:
            name = arm["method"]
            if name in TRAINED or name in bench.heads:
                arm["depths"] = depths(arm["acceptance_histogram"])
                arm["baseline"] = TRAINED[name].baseline if name in TRAINED else None
        return recorder.add(arms=rows)


class DrafterBench(CaptionBench):
    """Has an arm for each head of the settings beside those of `bench caption`.

    Attributes:
        heads: the method of each, by arm.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heads: dict[str, Method] = {}
        for folder in map(Path, self.settings.heads):
            name = folder.parent.name if folder.name == "head" else folder.name
            if name in {*KNOWN, *self.heads}:
                raise SoonerError(
                    f"--heads: '{folder}' would be a second arm '{name}'; rename the folder"
                )
            self.heads[name] = fixed_length(folder)

    def base(self, name: str) -> str:
        return "plain" if name in self.heads else super().base(name)

    def method(self, name: str, clip: Clip) -> Method:
        return self.heads[name] if name in self.heads else super().method(name, clip)


def fixed_length(folder: Path) -> Method:
    """Load a head as a method whose drafts have one length: a chain of `DEPTH`, or its block."""
    if method_of(folder) == "eagle":
        return load_drafter(folder, nodes=DEPTH, depth=DEPTH, top_k=1)
    method: Any = load_drafter(folder)
    return replace(method, num_draft_tokens=min(BLOCK, method.drafter.config.block_size - 1))


def depths(histogram: Mapping[int, int], depth: int = DEPTH) -> list[float]:
    """Return the shares of steps in which at least 1, 2, ... `depth` draft tokens were accepted.

    Args:
        histogram: accepted draft tokens of a step -> steps; those near an answer's end, which
            could draft less, are counted.
        depth: levels.
    """
    steps = sum(histogram.values())
    return [
        sum(times for count, times in histogram.items() if count >= level) / steps if steps else 0.0
        for level in range(1, depth + 1)
    ]


def goals(result: Data) -> list[Data]:
    """Return a row for each goal whose arms were measured."""
    figures = {arm["method"]: arm for arm in result["arms"]}
    rows = []
    for arm, figure, bound, over_baseline in GOALS:
        reached, name = figures.get(arm, {}).get(figure), f"{arm}: {figure}"
        if over_baseline and reached is not None:
            baseline = TRAINED[arm].baseline or ""
            below = figures.get(baseline, {}).get(figure)
            reached, name = reached / below if below else None, f"{name} over {baseline}"
        if reached is not None:
            rows.append(goal(name, bound, reached))
    return rows


def _deep(result: Data) -> list[Data]:
    return [arm for arm in result["arms"] if arm.get("depths")]


def by_depth(key: str) -> Callable[[Data], str]:
    """Return what makes a cell of the shares of each depth in a row."""
    return lambda row: " ".join(f"{share:.1%}" for share in row[key])


ARMS: tuple[tuple[Any, str, str], ...] = (
    ("method", "method", "{}"), ("tokens", "tokens", "{}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"), ("decode_speedup", "decode", "{:.2f}×"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("theory_speedup", "theory", "{:.2f}×"), ("parity", "parity", "{}"),
)  # fmt: skip
PAGE = Page(
    "Trained drafters",
    (
        Table(
            lambda result: f"{result['model']}, {result['clips']} clips",
            "arms",
            ARMS,
            "One run, all arms in turns; *theory* is what the arm's own acceptance and step times "
            "allow. The target is a miniature of 28 small layers, of which four are trained: what "
            "a head costs beside it is not what one costs beside a model of billions, so "
            "acceptance is the figure to read here.",
        ),
        Table(
            "Acceptance by depth",
            _deep,
            (
                ("method", "method", "{}"),
                (lambda arm: arm["baseline"] or "", "same weights as", "{}"),
                (by_depth("depths"), "1, 2, ... tokens", "{}"),
            ),
            "Share of steps in which at least so many draft tokens were accepted.",
        ),
    ),
    goals="Fixed in `sooner_lab.bench.drafters` before this run, and committed after a smoke run "
    "of one clip had been seen: not blind.",
)
