"""`sooner bench marks`: which visual tokens a draft needs, on a world that can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Json, count, listed, run_bench, some_of


def marks(
    models: Annotated[
        Path, typer.Option(metavar="DIR", help="What `sooner train miniature marks` wrote.")
    ],
    drafts: Annotated[str | None, listed("Only these checkpoints of the draft.")] = None,
    parts: Annotated[
        str | None, listed("gate, criteria, layers, speed, baselines; by default the gate.")
    ] = None,
    clips: Annotated[int | None, count("Held-out clips; fewer than 96 are a trial.")] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Find the clips' contrast, judge nothing.")
    ] = False,
    threads: options.Threads = None,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Hold drafts without most of their visual tokens against the target's captions.

    A gate comes first: only where an oracle, a random and a blind draft lie where they must may
    the ways to prune be judged.
    """
    from ..bench.marks.run import PARTS, MarkSettings, run
    from ..bench.marks.settings import CLIPS, DRAFTS

    settings = MarkSettings(
        models=models,
        drafts=some_of("checkpoint", drafts, DRAFTS) or DRAFTS,
        parts=some_of("part", parts or "gate", PARTS, "gate"),
        clips=clips or CLIPS,
        calibrate=calibrate,
        threads=threads,
    )
    run_bench(run, settings, json, debug)
