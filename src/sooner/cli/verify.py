"""`sooner verify`: is a method's output that of plain decoding?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ..io import check_writable, write_json
from ..tasks.settings import CaptionSettings
from . import BAD, BUG, options
from .display import Display, Tally
from .from_settings import Fields, from_settings

VERIFY_OPTIONS = Fields(
    only=(
        "method", "num_draft_tokens", "head", "prune", "placement", "frames", "fps",
        "prompt", "max_new_tokens",
    ),
    defaults={"max_new_tokens": 256},
)  # fmt: skip
PAIR = Fields(only=("model", "draft", "device", "dtype", "threads"))


def _verify_video(*inputs: Any) -> Iterator[dict[str, Any]]:
    from ..tasks.caption import verify as compare

    yield compare(*inputs)


@from_settings
def verify(
    *,
    videos: options.Videos,
    settings: Annotated[CaptionSettings, VERIFY_OPTIONS],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write ids and verdicts there.")
    ] = None,
    models: Annotated[options.Models, PAIR],
    display: Display,
) -> None:
    """Compare a method, token by token, with HF's own plain decoding.

    Each video gets a verdict, and each line of a text file (.txt), which is a question to a model
    of texts: identical, tie (the two best scores differ by less than rounding explains) or bug.
    Exit code 1 if any is a bug.
    """
    from ..parity import Parity
    from ..tasks import chat
    from ..tasks.identity import find
    from ..tasks.video import probe

    if json_file is not None:
        check_writable(json_file)
    tally = Tally(display, "files verified")
    paths = find(videos.paths(models.model))
    texts = [path for path in paths if path.suffix.lower() == ".txt"]
    if not texts:
        probe(paths[0])
    with display.loading():
        pair = models.load(sees=len(texts) < len(paths))
    reports: list[dict[str, Any]] = []
    for path in paths:
        with tally.attempt(f"'{path}'"):
            is_text = path in texts
            compare = chat.verify if is_text else _verify_video
            on_stage = display.text_stage if is_text else display.stage
            for report in compare(path, pair, settings, on_stage):
                display.end_text()
                parity = Parity(**{item.name: report[item.name] for item in fields(Parity)})
                method = f"{report['method']} ({report['mode']})"
                typer.echo(f"{report['file']}: {method}: {parity}, {report['tokens']} tokens")
                reports.append(report)
    if len(reports) > 1:
        counts = Counter(report["verdict"] for report in reports)
        display.line(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), "bold")
    if json_file is not None:
        write_json(reports, json_file)
    if any(report["verdict"] == "bug" for report in reports):
        raise typer.Exit(BUG)
    if tally.failed:
        raise typer.Exit(BAD)
