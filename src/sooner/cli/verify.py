"""`sooner verify`: is a method's output that of plain decoding?"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from ..io import check_writable, write_json
from ..tasks.settings import CaptionSettings
from . import BAD, BUG, options
from .display import Display, Tally
from .from_settings import Fields, from_settings

COMPARED = Fields(
    only=(
        "method", "num_draft_tokens", "head", "prune", "placement", "frames", "fps",
        "prompt", "max_new_tokens",
    ),
    defaults={"max_new_tokens": 256},
)  # fmt: skip
PAIR = Fields(only=("model", "draft", "device", "dtype", "threads"))


@from_settings
def verify(
    *,
    videos: options.Videos,
    settings: Annotated[CaptionSettings, COMPARED],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write ids and verdicts there.")
    ] = None,
    models: Annotated[options.Models, PAIR],
    display: Display,
) -> None:
    """Compare a method, token by token, with HF's own plain decoding.

    Each video gets a verdict: identical, tie (the two best scores differ by less than rounding
    explains) or bug. Exit code 1 if any is a bug.
    """
    from ..parity import Parity
    from ..tasks.caption import verify as compare
    from ..tasks.identity import find
    from ..tasks.video import probe

    if json_file is not None:
        check_writable(json_file)
    tally = Tally(display, "videos verified")
    paths = find(videos.paths(models.model))
    probe(paths[0])
    with display.loading():
        pair = models.load()
    reports = []
    for path in paths:
        with tally.attempt(f"'{path}'"):
            report = compare(path, pair, settings, display.stage)
            display.end_text()
            parity = Parity(**{item.name: report[item.name] for item in fields(Parity)})
            verdict = f"{report['method']} ({report['mode']}): {parity}, {report['tokens']} tokens"
            typer.echo(f"{path}: {verdict}")
            reports.append(report)
    if json_file is not None:
        write_json(reports, json_file)
    if any(report["verdict"] == "bug" for report in reports):
        raise typer.Exit(BUG)
    if tally.failed:
        raise typer.Exit(BAD)
